"""What a process that runs an app needs around it: targets, job files, the tools of its node, and a clean end."""
