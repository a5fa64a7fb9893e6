"""The web: HTTP API and dashboard, both asking the desk. Starlette and Jinja2 come with `horae[server]`.

site.py       what the web is given by the program around it
server.py     the application: routes of the API and of the pages, and what surrounds every request
"""
