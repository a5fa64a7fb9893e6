"""The web: the HTTP API and the dashboard, both on top of `horae.api`. Starlette and Jinja2 come with `horae[server]`.

site.py       what the web gets from the program around it
server.py     the application: the routes of the API and of the pages, and the middleware
"""
