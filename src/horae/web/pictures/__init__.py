"""Pictures and letters of the pages: pure arithmetic, from answers of the desk to places on the screen.

letters.py    what strangers printed, made fit to be looked at
moments.py    times of answers, read back
gantt.py      a run's tasks and attempts on one axis of time
yearmap.py    a year, a cell a day
trace.py      one decision: the window, what was drawn in it, what spoke against it
saying.py     a schedule in every language it can be written in
caret.py      where in a typed line the fault is
"""
