"""The console: pages for people at ``/`` and below ``/console/``, made on the server by the services of the API.

How a page is added:

1. The services that it calls. A page asks them, never the catalog or the storage, and never the API over HTTP.
2. ``app/console/<noun>.py``: a function that takes a ``Visit`` and returns what ``visit.page("<noun>.html", …)`` or
   ``visit.fragment`` made, and an entry of the module's ``PAGES``: method, path, function, the role that it needs. With
   ``{database}`` and ``{table}`` in its path the role is asked for that table. What changes something is a POST; its
   form has ``{{ csrf(visit) }}`` in it, is answered with a redirect (``visit.go``), and notes what it did
   (``visit.note``) for the audit log, as the API's route does. What brings records has a field ``once``
   (``visits.new_once``) and is staged with ``visit.once(…)`` as Idempotency-Key, so that a form sent twice counts once;
   a form with a file, or larger than 1 MiB, is named in ``app/http/uploads.py``, and its file is ``visit.file``. Then
   the module's name in ``app/console/site.py``.
3. ``app/console/templates/<noun>.html``, which extends ``layout.html``. Everything is escaped; nothing may be styled or
   scripted in its text, for the policy of the pages forbids it: classes are in ``assets/console.css``. What somebody
   may not do is left out (``visit.may``). Whatever the page does, ``{{ curl(…) }}`` shows as a command.
4. ``tests/console/test_<noun>.py`` over HTTP, with hostile names; ``tests/console/test_browser.py`` walks all pages of
   its list in a real Chromium: add the page there. What people should see in the tour is an entry of
   ``tests/console/screenshots.py``; ``make screenshots`` takes its pictures for docs/console.md.

A page works without a script. With it, elements with ``hx-get`` and ``hx-trigger="keyfold:tick from:body"`` are looked
up every two seconds while the page is seen (``assets/console.js``); a fragment that is as it was is answered with 204
and changes nothing (``visit.fragment``).
"""
