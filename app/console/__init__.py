"""The console: pages for people at ``/`` and below ``/console/``, made on the server by the services of the API.

How a page is added:

1. The page calls services. It never calls the catalog, the storage, or the API over HTTP.
2. Its module is ``pages/<noun>.py``, or ``table_pages/<noun>.py`` for a page of one table. A function takes a ``Visit``
   and returns ``visit.page("<folder>/<noun>.html", …)`` or ``visit.fragment``. An entry of ``PAGES`` names the method,
   the path, the function and the role. ``routes.py`` lists the module.
3. A page that changes something is a POST. Its form has ``{{ csrf(visit) }}``. The answer is a redirect (``visit.go``).
   ``visit.note`` writes to the audit log, as the API's route does.
4. A page that brings records has a field ``once`` (``visits.new_once``). ``visit.once(…)`` is the Idempotency-Key, so a
   form that is sent twice counts once. ``app/http/uploads.py`` names forms with a file, or larger than 1 MiB.
5. The template extends ``parts/layout.html``. The policy of the pages forbids styles and scripts in it; classes are in
   ``assets/console.css``. ``visit.may`` leaves out what the visitor may not do. ``{{ curl(…) }}`` shows the command.
6. ``tests/console/pages/test_<noun>.py`` asks over HTTP, with hostile names. ``tests/console/test_browser.py`` lists
   the pages that a real Chromium walks. ``tests/console/screenshots.py`` takes the pictures of docs/console.md.

A page works without a script. With it, elements with ``hx-get`` and ``hx-trigger="keyfold:tick from:body"`` are
fetched every two seconds while the page is visible (``assets/console.js``). An unchanged fragment is answered with 204.
"""
