"""What the shop's requests and results look like. Amounts are in cents."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

Cents = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(gt=0, le=1000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class OrderLine(BaseModel):
    """So many of one article."""

    article: Name
    count: Count = 1


class Order(BaseModel):
    """Payload of shop.place_order."""

    customer: Name
    lines: Annotated[list[OrderLine], Field(min_length=1, max_length=100)]
    remind_after: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which the customer is asked for a review; None: never."""


class PlacedOrder(BaseModel):
    """Result of shop.place_order."""

    order_id: int
    total_cents: int
    reminder: str | None = None
    """Id of the request that reminds the customer."""


class Charge(BaseModel):
    """Payload of shop.charge_card. `card` is a token, never a card number."""

    order_id: int
    card: Name
    amount_cents: Cents


class Charged(BaseModel):
    """Result of shop.charge_card: what the card service says."""

    charge_id: str
    amount_cents: int


class InvoiceLine(BaseModel):
    """One position of an invoice."""

    article: Name
    count: Count
    price_cents: Cents


class Invoice(BaseModel):
    """Payload of shop.make_invoice."""

    order_id: int
    customer: Name
    lines: Annotated[list[InvoiceLine], Field(min_length=1, max_length=1000)]


class MadeInvoice(BaseModel):
    """Result of shop.make_invoice; the PDF itself is in the table shop.invoices."""

    invoice_id: int
    pages: int
    size: int
    total_cents: int


class PageView(BaseModel):
    """Payload of shop.record_page_view."""

    path: Name
    visitor: str | None = None
    viewed_at: datetime


class Reminder(BaseModel):
    """Payload of shop.send_reminder."""

    order_id: int
    customer: Name


class Parcel(BaseModel):
    """Payload of shop.ship_parcel."""

    order_id: int
    region: Name


class ShippedParcel(BaseModel):
    """Result of shop.ship_parcel."""

    parcel_id: int
    carrier: str


class Recount(BaseModel):
    """Payload of shop.recount_stock."""

    article: Name


class Recounted(BaseModel):
    """Result of shop.recount_stock."""

    article: str
    stock: int
    times: int
    """How often this article has been counted."""
