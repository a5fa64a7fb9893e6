"""Charts and texts of the pages: pure functions from API responses to positions on the screen.

letters.py        untrusted text made safe to read
moments.py        times in responses, parsed
charts.py         columns of outcomes by hour, dots of durations
gantt.py          a run's tasks and attempts on one time axis
timeline.py       running runs and next starts on one time axis
strip.py          a job's latest outcomes in a row
yearmap.py        a year with a cell for each day
jobyear.py        a job's year: how runs ended, and starts to come
trace.py          one decision: the window, its candidates and why they were rejected
plan.py           the load before and after a plan, and faults of a job file
schedule_text.py  a schedule in every notation
caret.py          the place of a fault in a typed line
"""
