"""Views: routes that show what the store and the space hold, for pages and programs."""

from api.views import about, bests, events, fleet, ladder, layouts, measurements, neighbours, space, studies

#: Modules with a router each.
VIEWS = (bests, measurements, studies, ladder, space, neighbours, layouts, fleet, events, about)
