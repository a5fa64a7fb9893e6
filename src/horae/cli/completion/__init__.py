"""Completion of commands, options and names in bash, zsh and fish."""
