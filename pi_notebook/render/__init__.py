"""From a run's picture to what a front end shows: text, Markdown, HTML, JSON, and a live display.

Everything that came from a model or a tool is untrusted here: `untrusted.py` is the one place that
makes it safe, and every other module takes its texts from there.
"""
