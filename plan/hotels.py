"""The catalogue: cities, their invented hotels, prices per night, and the arithmetic of a stay.

Money is whole minor units until the moment it is shown. Knows nothing of what is sold: how many rooms are left comes
from the ledger, as a parameter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from math import asin, cos, radians, sin, sqrt
from typing import Any, Literal

from plan.model import Offer, RoomType, Trip

Language = Literal["zh", "en"]

CURRENCY_DIGITS = {"JPY": 0, "KRW": 0, "VND": 0, "CLP": 0, "ISK": 0, "KWD": 3, "BHD": 3, "OMR": 3, "JOD": 3, "TND": 3}
"""Digits after the point where ISO 4217 has other than two."""

EARTH_RADIUS_KM = 6371.0


@dataclass(frozen=True)
class Hotel:
    """A hotel and what each of its room types costs a night; a type without a price isn't let there."""

    hotel_id: str
    zh: str
    en: str
    prices_minor: Mapping[RoomType, int]

    def name(self, language: Language) -> str:
        """Its name for a reader of `language`."""
        return self.zh if language == "zh" else self.en


@dataclass(frozen=True)
class City:
    """A city where rooms can be had. Coordinates are those of its centre, in degrees."""

    zh: str
    en: str
    latitude: float
    longitude: float
    currency: str
    hotels: tuple[Hotel, ...]
    spellings: tuple[str, ...] = ()
    """Further names that `fold_name` doesn't make equal to the two."""

    def name(self, language: Language) -> str:
        """Its name for a reader of `language`."""
        return self.zh if language == "zh" else self.en


def _hotel(hotel_id: str, zh: str, en: str, **minor_by_room: int) -> Hotel:
    return Hotel(hotel_id, zh, en, {RoomType(room): minor for room, minor in minor_by_room.items()})


CATALOGUE: tuple[City, ...] = (
    City(
        *("西安", "Xi'an", 34.2583, 108.9286, "CNY"),
        hotels=(
            _hotel("XA-BELL", "钟楼南苑酒店", "Bell Tower South Court", standard=32000, deluxe=45000, suite=68000),
            _hotel("XA-WALL", "城墙根客栈", "Inn under the City Wall", standard=26000, deluxe=39000),
            _hotel("XA-GOOSE", "雁影湖酒店", "Wild Goose Lake Hotel", deluxe=52000, suite=79000),
            _hotel("XA-SILK", "丝路驿馆", "Silk Road Lodge", standard=29800, suite=72000),
        ),
    ),
    City(
        *("北京", "Beijing", 39.9075, 116.3972, "CNY"),
        hotels=(
            _hotel("BJ-DRUM", "鼓巷酒店", "Drum Lane Hotel", standard=48000, deluxe=66000, suite=98000),
            _hotel("BJ-LAKE", "柳岸别院", "Willow Bank House", deluxe=72000, suite=115000),
            _hotel("BJ-GATE", "东门小筑", "East Gate Rooms", standard=39900, deluxe=58000),
        ),
        spellings=("Peking",),
    ),
    City(
        *("上海", "Shanghai", 31.2222, 121.4581, "CNY"),
        hotels=(
            _hotel("SH-RIVER", "江湾望酒店", "River Bend Hotel", standard=56000, deluxe=78000, suite=128000),
            _hotel("SH-PLANE", "梧桐里", "Plane Tree Mews", standard=49800, suite=108000),
            _hotel("SH-LAMP", "灯塔旅舍", "Lamplight Hotel", standard=42000, deluxe=62000),
        ),
    ),
    City(
        *("成都", "Chengdu", 30.6667, 104.0667, "CNY"),
        hotels=(
            _hotel("CD-TEA", "茶巷酒店", "Tea Lane Hotel", standard=30000, deluxe=42000, suite=64000),
            _hotel("CD-BAMBOO", "竹影居", "Bamboo Shade House", standard=27500, deluxe=38800),
            _hotel("CD-BROOK", "浣溪酒店", "Washing Brook Hotel", deluxe=46000, suite=70000),
        ),
    ),
    City(
        *("东京", "Tokyo", 35.6895, 139.6917, "JPY"),
        hotels=(
            _hotel("TK-CRANE", "鹤町酒店", "Crane Town Hotel", standard=16000, deluxe=24000, suite=42000),
            _hotel("TK-HARBOR", "港灯酒店", "Harbour Light Hotel", deluxe=28000, suite=51000),
            _hotel("TK-PINE", "松之宿", "Pine Inn", standard=13500, deluxe=19800),
        ),
        spellings=("東京", "东京都", "東京都"),
    ),
    City(
        *("巴黎", "Paris", 48.8534, 2.3488, "EUR"),
        hotels=(
            _hotel("PA-QUAI", "河岸酒店", "Hôtel du Quai Gris", standard=14500, deluxe=21000, suite=36000),
            _hotel("PA-VIGNE", "葡萄园公馆", "Maison de la Petite Vigne", standard=12000, suite=31000),
            _hotel("PA-TOITS", "屋檐酒店", "Hôtel des Toits", standard=13200, deluxe=18900),
        ),
    ),
)

# A spacing acute accent becomes a space under NFKC, so apostrophes go first.
APOSTROPHES = str.maketrans("", "", "'’‘ʼʹ′`´＇‛")


def fold_name(name: str) -> str:
    """Comparable form of a place name: no case, accents, apostrophes, spaces, hyphens, and no final 市, 县 or 区."""
    text = unicodedata.normalize("NFKD", name.translate(APOSTROPHES)).casefold()
    text = "".join(c for c in text if unicodedata.category(c) not in ("Mn", "Cf"))
    text = re.sub(r"[\s\-‐-―·]+", "", text)
    return text[:-1] if len(text) > 2 and text[-1] in "市县區区縣" else text


def same_place_name(a: str, b: str) -> bool:
    """Whether two texts name one place: equal but for spelling, or names of the same city of the catalogue."""
    if fold_name(a) == fold_name(b):
        return True
    known = city_named(a)
    return known is not None and known == city_named(b)


def city_named(name: str) -> City | None:
    """The catalogue's city of that name, in either language and any of its spellings."""
    wanted = fold_name(name)
    return next((c for c in CATALOGUE if wanted in {fold_name(n) for n in (c.zh, c.en, *c.spellings)}), None)


def distance_km(latitude_a: float, longitude_a: float, latitude_b: float, longitude_b: float) -> float:
    """Great-circle distance between two places given in degrees."""
    a, b = radians(latitude_a), radians(latitude_b)
    half = sin((b - a) / 2) ** 2 + cos(a) * cos(b) * sin(radians(longitude_b - longitude_a) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * asin(min(1.0, sqrt(half)))


def money_text(minor: int, currency: str) -> str:
    """An amount in the digits of its currency: 1360.00 for CNY, 84000 for JPY."""
    digits = CURRENCY_DIGITS.get(currency, 2)
    whole, part = divmod(abs(minor), 10**digits)
    return ("-" if minor < 0 else "") + (f"{whole}.{part:0{digits}d}" if digits else str(whole))


def offer_for(hotel_id: str, room_type: RoomType, trip: Trip, language: Language = "en") -> Offer | None:
    """What the stay would cost there; None if the trip's city has no such hotel, or the hotel no such room."""
    city = city_named(trip.city)
    hotel = next((h for h in city.hotels if h.hotel_id == hotel_id), None) if city else None
    if city is None or hotel is None or room_type not in hotel.prices_minor:
        return None
    return Offer(
        hotel_id=hotel_id,
        hotel_name=hotel.name(language),
        room_type=room_type,
        check_in=trip.check_in,
        nights=trip.nights,
        total_minor=trip.nights * hotel.prices_minor[room_type],
        currency=city.currency,
    )


def search_result(
    city: City, trip: Trip, left: Mapping[tuple[str, RoomType], int], language: Language
) -> dict[str, Any]:
    """The data of `search_hotels`. A room type that isn't in `left` has nothing left; sold-out ones stay listed."""
    return {
        "city": trip.city,
        "check_in": trip.check_in.isoformat(),
        "nights": trip.nights,
        "hotels": [
            {
                "hotel_id": hotel.hotel_id,
                "name": hotel.name(language),
                "rooms": [
                    {
                        "room_type": room.value,
                        "price_per_night": money_text(minor, city.currency),
                        "currency": city.currency,
                        "left": left.get((hotel.hotel_id, room), 0),
                    }
                    for room, minor in hotel.prices_minor.items()
                ],
            }
            for hotel in city.hotels
        ],
    }
