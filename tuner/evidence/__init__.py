"""The store: studies, measurements, bests and campaigns in a SQL database. `store.Store` is the way in."""

# Whoever sees one table sees all of them.
from tuner.evidence import build_models as build_models
from tuner.evidence import campaign_models as campaign_models
