"""Views: routes that show what the store and the space hold, for pages and programs."""

from api.views import about, bests, events, fleet, ladder, measurements, neighbours, space, studies

#: Modules with a router each.
VIEWS = (bests, measurements, studies, ladder, space, neighbours, fleet, events, about)
