"""The Spark jobs: the embedded server, sessions, and the one job that runs tasks. Imports: app.core, app.files,
app.kernel.
"""
