"""A client for the service: small, typed, and safe to retry. It needs only Python's standard
library.
"""

from dpbandit.client.blocking import Client
from dpbandit.client.calls import Decision
from dpbandit.client.concurrent import AsyncClient

__all__ = ["AsyncClient", "Client", "Decision"]
