"""From records to contexts: `features` says what a field becomes, `encode` puts fields together."""

from dpbandit.encoder.encode import Encoder, Slate
from dpbandit.encoder.features import Category, Hashed, Number

__all__ = ["Category", "Encoder", "Hashed", "Number", "Slate"]
