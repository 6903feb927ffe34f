"""Every table of a store, whichever module declares it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import MetaData

from tuner.evidence.campaign_models import CampaignRow
from tuner.evidence.models import Base

METADATA: Final[MetaData] = Base.metadata
#: Importing a module declares its tables.
DECLARED: Final = (Base, CampaignRow)
