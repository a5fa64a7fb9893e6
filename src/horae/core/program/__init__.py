"""Rules for the programs of EXTERNAL jobs: which may be started, with which environment and limits."""
