"""All parties at once, without ciphers, and the exact traffic that the federation would have."""

from __future__ import annotations

import numpy as np

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import Evaluation
from lpgcn.model.sampling import batch_users, negative_places, places
from lpgcn.plan import Plan, TokenGraph
from lpgcn.protocol.accounting import Accounting
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.rounds import Batch
from lpgcn.protocol.routes import Routes
from lpgcn.random import Purpose, integers
from lpgcn.runtime.centralized import Centralized
from lpgcn.runtime.engine import Part
