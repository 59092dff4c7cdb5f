"""Weather for travellers as an MCP server: `search_location` and `get_weather` over Open-Meteo.

A foreseen failure is a ToolError whose text is JSON: `code` for the caller's next move, `message` for its reader, and
details. The server knows nothing of trips or bookings, remembers answers only for minutes, and repeats no failed
request: whether a second attempt is worth it is the caller's decision.
"""

import argparse
import asyncio
import hmac
import ipaddress
import json
import logging
import math
import os
import re
import signal
import socket
import sys
import time
import unicodedata
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import httpx
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

Kind = Literal["search", "forecast", "archive"]
Condition = Literal["rain", "snow", "fog", "cloudy", "clear"]

HOSTS: dict[Kind, tuple[str, str]] = {
    "search": ("OPEN_METEO_GEOCODING_URL", "geocoding-api.open-meteo.com"),
    "forecast": ("OPEN_METEO_URL", "api.open-meteo.com"),
    "archive": ("OPEN_METEO_ARCHIVE_URL", "archive-api.open-meteo.com"),
}
# Shares of the caller's own time limit, so that our sentence arrives before it gives up: 0.85 for the slowest call.
TIME_SHARE: dict[Kind, float] = {"search": 0.6, "forecast": 0.6, "archive": 0.25}
SEARCH_SHARE = 0.85  # all spellings of one name together
CONNECT_TIMEOUT_S = 5.0
REMEMBERED_S = 600.0  # Open-Meteo renews its forecasts hourly at most
REMEMBERED_MOST = 256
ATTRIBUTION = "Weather data by Open-Meteo.com (CC BY 4.0)"
PLACE_ATTRIBUTION = "Place data by GeoNames (CC BY 4.0), found through Open-Meteo.com"


FROM_UPSTREAM = ConfigDict(strict=True, allow_inf_nan=False)


class Failure(ToolError):  # noqa: N818 - the noun of the contract
    """A foreseen failure. Only a ToolError's text crosses the wire, so everything the caller needs is in it."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(json.dumps({"code": code, "message": message, **details}, ensure_ascii=False))


# The rule for rain. A wet day begins at 1 mm, as climatology counts it; below, a code says too much. In Open-Meteo's
# source 51 begins at 0.01 mm in one hour, a day's code is the highest of its hours, and 95 needs no water at all.
WET_DAY_MM = 1.0
TRACE_MM = 0.2  # enough if rain is likely or thunder forecast
LIKELY_PERCENT = 60
SNOW_CM_PER_MM = 0.7  # Open-Meteo: 7 cm of snow hold 10 mm of water
SKY_BY_CODE: dict[int, Condition] = {0: "clear", 1: "clear", 85: "snow", 86: "snow"}
# WMO 4677 groups its codes by tens, so a code not known yet still has a meaning.
SKY_BY_DECADE: dict[int, Condition] = {4: "fog", 5: "rain", 6: "rain", 7: "snow", 8: "rain"}
THUNDER_DECADE = 9


class Day(BaseModel):
    """One day's values under Open-Meteo's names, which are the columns asked for; None is no value and never zero."""

    model_config = FROM_UPSTREAM
    weather_code: float | None = None
    temperature_2m_max: float | None = None
    temperature_2m_min: float | None = None
    precipitation_sum: float | None = None
    rain_sum: float | None = None
    showers_sum: float | None = None
    snowfall_sum: float | None = None
    precipitation_probability_max: float | None = None


def liquid_mm(day: Day) -> float | None:
    """Water that falls as water. Some models split showers from rain, others give only the sum with snow in it."""
    if day.rain_sum is not None and day.showers_sum is not None:
        return day.rain_sum + day.showers_sum
    if day.precipitation_sum is None:
        return None
    if day.snowfall_sum is None:
        return None if sky(day) == "snow" else day.precipitation_sum
    return max(0.0, day.precipitation_sum - day.snowfall_sum / SNOW_CM_PER_MM)


def sky(day: Day) -> Condition | None:
    """What the code alone says; thunder says nothing about water."""
    if day.weather_code is None:
        return None
    code = int(day.weather_code)
    return SKY_BY_CODE.get(code) or SKY_BY_DECADE.get(code // 10, "cloudy")


def condition_of(day: Day) -> Condition | None:
    """Millimetres first, the code second; None if neither is there."""
    liquid, seen, chance = liquid_mm(day), sky(day), day.precipitation_probability_max or 0
    thunder = day.weather_code is not None and day.weather_code // 10 == THUNDER_DECADE
    if liquid is None:
        return "rain" if thunder and chance >= LIKELY_PERCENT else seen
    if liquid >= WET_DAY_MM or (liquid >= TRACE_MM and (thunder or chance >= LIKELY_PERCENT)):
        return "rain"
    return "cloudy" if seen in (None, "rain") else seen


class Settings(BaseModel):
    """What the environment says, read once at the start; an empty variable counts as unset."""

    model_config = ConfigDict(frozen=True)
    bases: dict[Kind, Annotated[str, Field(pattern=r"^https?://[^/?#\s]+[^?#\s]*$")]]
    api_key: str | None = Field(None, alias="OPEN_METEO_API_KEY")
    tool_timeout_s: float = Field(20.0, alias="TRIP_TOOL_TIMEOUT_S", gt=0, allow_inf_nan=False)
    today: date | None = Field(None, alias="TRIP_TODAY")
    token: str | None = Field(None, alias="TRIP_MCP_TOKEN")

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> "Settings":
        """Raises ValueError with one line that names the variable."""
        value = {name: text.strip() for name, text in environ.items() if text.strip()}
        prefix = "customer-" if "OPEN_METEO_API_KEY" in value else ""  # the free hosts refuse a key
        bases = {kind: value.get(name, f"https://{prefix}{host}").rstrip("/") for kind, (name, host) in HOSTS.items()}
        try:
            return cls.model_validate({**value, "bases": bases})
        except ValidationError as error:
            fault = error.errors()[0]
            *_, last = fault["loc"]  # the value itself stays unsaid: an address may hold a password
            base = "must be a base such as https://api.open-meteo.com"
            line = f"{HOSTS[last][0]} {base}" if last in HOSTS else f"{last}: {fault['msg']}"
            raise ValueError(line) from None


def real_day(text: str) -> str:
    """The text itself, if such a day exists: 2026-02-30 doesn't."""
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise ValueError("not YYYY-MM-DD")
    date.fromisoformat(text)
    return text


class OpenMeteo:
    """The one door to Open-Meteo: one request at a time per host, shared by all who ask the same."""

    def __init__(self, client: httpx.AsyncClient, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._one_at_a_time: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._answers: dict[Any, tuple[float, asyncio.Task[Any]]] = {}

    def limit_s(self, share: float) -> float:
        """A share of the time the caller waits for us."""
        return self._settings.tool_timeout_s * share

    async def ask(self, kind: Kind, **params: Any) -> Any:
        """The answer's JSON. One under way and one that came are the same thing here: a task to wait for."""
        key = (kind, *sorted(params.items()))
        born, task = self._answers.get(key, (-math.inf, None))
        if task is None or time.monotonic() - born > REMEMBERED_S:
            task = asyncio.create_task(self._fetch(kind, params))
            task.add_done_callback(lambda done: self._forget_failure(key, done))
            self._answers[key] = (time.monotonic(), task)
            if len(self._answers) > REMEMBERED_MOST:
                self._answers.pop(next(iter(self._answers)))
        return await asyncio.shield(task)  # who gives up doesn't take the answer from the others

    def close(self) -> None:
        """Ends what is under way: nobody waits for it any more."""
        for _, task in self._answers.values():
            task.cancel()

    def _forget_failure(self, key: Any, done: asyncio.Task[Any]) -> None:
        failed = done.cancelled() or done.exception() is not None
        if failed and self._answers.get(key, (0, None))[1] is done:
            del self._answers[key]

    async def _fetch(self, kind: Kind, params: dict[str, Any]) -> Any:
        base, key = self._settings.bases[kind], self._settings.api_key
        everything = params | ({"apikey": key} if key else {})
        turn = self._one_at_a_time[httpx.URL(base).host]
        try:
            async with asyncio.timeout(self.limit_s(TIME_SHARE[kind])), turn:
                response = await self._client.get(f"{base}/v1/{kind}", params=everything)
        except (TimeoutError, httpx.TimeoutException):
            raise Failure("timeout", "Open-Meteo did not answer in time; try again later.") from None
        except httpx.ProxyError:
            raise Failure("upstream_unavailable", "This server's proxy settings fail; check its variables.") from None
        except httpx.HTTPError:
            raise Failure("upstream_unavailable", "The connection to Open-Meteo broke; try again later.") from None
        return body_of(response)


def body_of(response: httpx.Response) -> Any:
    """Status first, then JSON, then the error that Open-Meteo may have put inside either."""
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        body = None
    status, error = response.status_code, body.get("error") if isinstance(body, dict) else None
    reason = str(body.get("reason", "")) if error else ""
    if status == 429 or "limit exceeded" in reason or "concurrent requests" in reason:
        raise rate_limited(reason, response.headers.get("Retry-After", ""))
    if status in (401, 403):
        raise Failure("upstream_unavailable", "Open-Meteo refuses this server; check its OPEN_METEO_API_KEY.")
    if "No data is available" in reason:
        raise Failure("weather_unknown", "Open-Meteo has no weather data for these coordinates; check them.")
    if status >= 500 or status == 408:
        raise Failure("upstream_unavailable", f"Open-Meteo is out of order (HTTP {status}); try again later.")
    if status != 200 or error:
        raise Failure("bad_response", f"Open-Meteo did not accept the request (HTTP {status}).")
    if body is None:
        raise Failure("bad_response", "Open-Meteo's answer was no valid JSON; try again later.")
    return body


def rate_limited(reason: str, retry_after: str) -> Failure:
    """Names a wait only where it is known: within a minute the caller's own short backoff serves."""
    wait_s = known_wait_s(reason.lower(), retry_after.strip())
    hint = "try again in a moment" if wait_s is None else f"try again in {wait_s} seconds"
    known = {} if wait_s is None else {"retry_after_seconds": wait_s}
    return Failure("rate_limited", f"Open-Meteo's request limit is reached; {hint}.", **known)


def known_wait_s(reason: str, retry_after: str) -> int | None:
    """From the header in either of its forms, else from the limit's own clock: Open-Meteo counts by UTC."""
    now = datetime.now(UTC)
    if re.fullmatch("[0-9]{1,9}", retry_after):
        return int(retry_after)
    with suppress(ValueError, OverflowError):
        until = parsedate_to_datetime(retry_after)
        return max(0, math.ceil((until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds()))
    if "daily" in reason:
        return math.ceil((now.replace(hour=0, minute=0, second=0) + timedelta(days=1) - now).total_seconds())
    return 3600 if "hourly" in reason else None


# Places. What is asked for and what is found are compared by `fold`, which keeps letters and drops what people vary.
FOLDED = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ı": "i"} | dict.fromkeys("'’‘ʼ`´-‐‑., ", ""))
SCRIPTS = {  # the geocoder searches only the index of the language asked for; Han is Chinese first
    "ja": "[\u3040-\u30ff]",
    "ko": "[\uac00-\ud7af]",
    "zh ja": "[\u4e00-\u9fff]",
    "ru": "[\u0400-\u04ff]",
    "el": "[\u0370-\u03ff]",
    "ar": "[\u0600-\u06ff]",
    "th": "[\u0e00-\u0e7f]",
}
HAN = "[\u4e00-\u9fff]"
# 浙江省杭州市: the region leads and is no part of the name. The index holds 杭州 without 市.
HAN_REGION = re.compile(rf"({HAN}+?(?:省|自治区|市))({HAN}{{2,}})")
HAN_TOWN = re.compile(rf"(?<={HAN}{{2}})市$")
HAN_SUFFIX = re.compile(rf"(?<={HAN}{{2}})(市|省|自治区|[县縣区區])$")
# Xian, Changan, Yanan: pinyin whose apostrophe was left out.
PINYIN_SEAM = re.compile(
    r"((?:(?:[zcs]h|[bpmfdtnlgkhjqxrzcsyw])[aeiouü]+(?:ng?)?)+)((?:a|ai|an|ang|ao|e|en|er|o|ou))", re.IGNORECASE
)
REGION_CODES = dict(
    re.findall(
        r"(\w\w) ([^,]+)",
        "AL Alabama,AK Alaska,AZ Arizona,AR Arkansas,CA California,CO Colorado,CT Connecticut,DE Delaware,FL Florida,"
        "DC Washington D.C.,GA Georgia,HI Hawaii,ID Idaho,IL Illinois,IN Indiana,IA Iowa,KS Kansas,KY Kentucky,"
        "LA Louisiana,ME Maine,MD Maryland,MA Massachusetts,MI Michigan,MN Minnesota,MS Mississippi,MO Missouri,"
        "MT Montana,NE Nebraska,NV Nevada,NH New Hampshire,NJ New Jersey,NM New Mexico,NY New York,OH Ohio,"
        "NC North Carolina,ND North Dakota,OK Oklahoma,OR Oregon,PA Pennsylvania,RI Rhode Island,TN Tennessee,"
        "SC South Carolina,SD South Dakota,TX Texas,UT Utah,VT Vermont,VA Virginia,WA Washington,WI Wisconsin,"
        "WV West Virginia,WY Wyoming,AB Alberta,BC British Columbia,MB Manitoba,ON Ontario,QC Quebec",
    )
)
COUNTRY_NICKNAMES = {"usa": "us", "unitedstatesofamerica": "us", "america": "us", "uk": "gb", "greatbritain": "gb"}
# A seat or an island is a destination, whatever number of inhabitants GeoNames knows for it.
LEAST_WEIGHT = {"PPLC": 100_000, "PPLA": 50_000, "PPLA2": 10_000, "ISL": 50_000, "ISLS": 50_000}
GONE = ("PPLH", "PPLQ", "PPLW")  # historical, abandoned, destroyed
RIVAL_SHARE = 0.1  # a namesake of a tenth of the weight may be meant just as well
KNOWN_WEIGHT = 15_000  # below, a place spelled otherwise is offered but not taken
FAMOUS_WEIGHT = 100_000  # below, a place with quite another name is offered but not taken
SAME_PLACE_DEGREES = 0.5
CANDIDATES_MOST = 5


class Place(BaseModel):
    """One place as the geocoder describes it; it leaves out what it doesn't know."""

    model_config = FROM_UPSTREAM
    name: str = Field(min_length=1, description="Name in the language of the query")
    admin1: str | None = Field(None, description="Province or state")
    country: str | None = Field(None, description="Country")
    latitude: float = Field(ge=-90, le=90, description="Degrees north")
    longitude: float = Field(ge=-180, le=180, description="Degrees east")
    timezone: str | None = Field(None, description="IANA time zone")
    country_code: str | None = Field(None, description="ISO 3166-1, two letters")
    admin2: str | None = Field(None, description="District or county")
    population: int | None = Field(None, description="Inhabitants")
    feature_code: str | None = Field(None, description="GeoNames feature code; PPLC is a capital")

    @property
    def is_destination(self) -> bool:
        """A town or an island: no airport, country or province."""
        code = self.feature_code or "PPL"
        return code.startswith(("PPL", "ISL")) and code not in GONE

    @property
    def weight(self) -> int:
        """Inhabitants, or what its class makes of it."""
        return max(self.population or 0, LEAST_WEIGHT.get(self.feature_code or "", 0))

    def label(self, *, fully: bool = False) -> str:
        """The name as it can be asked for again."""
        return ", ".join(x for x in (self.name, self.admin2 if fully else None, self.admin1, self.country) if x)

    def is_apart_from(self, other: "Place") -> bool:
        """Far enough for another weather."""
        degrees = abs(self.latitude - other.latitude) + abs(self.longitude - other.longitude)
        return degrees > SAME_PLACE_DEGREES


@dataclass(frozen=True)
class Asked:
    """A place as someone named it: the name proper, and what the commas say about where it lies."""

    text: str
    name: str
    qualifiers: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "Asked":
        """From free text, in whatever Unicode form and spacing it came."""
        text = tidy(text)
        name, *qualifiers = [part.strip() for part in re.split("[,，、]", text) if part.strip()] or [text]
        if parted := HAN_REGION.fullmatch(name):
            qualifiers, name = [*qualifiers, parted[1]], parted[2]
        return cls(text, name, tuple(qualifiers))

    def fits(self, hit: Place) -> bool:
        """Whether it is a destination where the qualifiers say; in Washington, D.C. they are part of the name."""
        is_there = all(lies_in(hit, qualifier) for qualifier in self.qualifiers)
        return hit.is_destination and (is_there or town(hit.name) == town(self.text))

    def names(self, hit: Place) -> bool:
        """Whether the hit has the name asked for, spelled in whatever way."""
        return town(hit.name) in (town(self.name), town(self.text), fold(HAN_SUFFIX.sub("", self.name)))

    def spells(self, hit: Place) -> bool:
        """Whether the hit has the name asked for to the letter; apostrophes look alike."""
        return plain(hit.name) == plain(self.name)


def tidy(text: str) -> str:
    """Composed accents, single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def plain(text: str) -> str:
    """One apostrophe, no case, 西安市 as 西安."""
    return HAN_TOWN.sub("", tidy(text).casefold().replace("’", "'"))


def fold(text: str) -> str:
    """Letters without case and accents."""
    bare = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in bare if not unicodedata.combining(c)).translate(FOLDED)


def town(text: str) -> str:
    """A folded name without 市."""
    return fold(HAN_TOWN.sub("", text))


def lies_in(hit: Place, qualifier: str) -> bool:
    """Whether a country, its code, a region or its usual abbreviation is meant: CA is California and Canada."""
    regions = {region(x) for x in (hit.country, hit.country_code, hit.admin1, hit.admin2) if x}
    wanted = region(qualifier)
    if {wanted, COUNTRY_NICKNAMES.get(wanted, wanted)} & regions:
        return True
    return hit.country_code in (None, "US", "CA") and region(REGION_CODES.get(wanted.upper(), "-")) in regions


def region(text: str) -> str:
    """A folded region without article, 省 and the like."""
    return fold(HAN_SUFFIX.sub("", re.sub(r"(?i)^the ", "", text)))


def spellings(name: str) -> Iterator[tuple[str, ...]]:
    """Rounds of spellings, the next only if none of the former is found. The geocoder keeps apostrophes apart."""
    seam = PINYIN_SEAM.fullmatch(name)
    straight = f"{seam[1]}'{seam[2]}" if seam else name.replace("’", "'")
    yield tuple(dict.fromkeys((name, straight, straight.replace("'", "’"))))
    if (short := HAN_SUFFIX.sub("", name)) != name:
        yield (short,)
    if re.search(r"[-'’ ]", name):
        yield tuple(other for mark in " -'’" if (other := re.sub(r"[-'’ ]", mark, name)) not in (name, straight))


async def geocode(meteo: OpenMeteo, asked: Asked) -> tuple[list[Place], list[str]]:
    """What the geocoder knows under this name, and the spellings tried."""
    hits: dict[tuple[float, float], Place] = {}
    tried: list[str] = []
    languages = next((codes for codes, script in SCRIPTS.items() if re.search(script, asked.name)), "en")
    for language, together in product(languages.split(), spellings(asked.name)):
        for spelling in together:
            found = places_of(await meteo.ask("search", name=spelling, count=100, language=language))
            hits |= {(hit.latitude, hit.longitude): hit for hit in found}
        tried += together
        if any(asked.fits(hit) and asked.names(hit) for hit in hits.values()):
            break
    return list(hits.values()), list(dict.fromkeys(tried))


def places_of(body: Any) -> list[Place]:
    """The geocoder's hits; without any it leaves the list out."""
    try:
        return [Place.model_validate(item) for item in body.get("results") or []]
    except (AttributeError, TypeError, ValidationError):
        raise Failure("bad_response", "The geocoder's answer is no list of places; try again later.") from None


def choose(asked: Asked, hits: list[Place], tried: list[str]) -> Place:
    """The one place that is meant, by name and weight and never by position; raises Failure when in doubt."""
    fitting = sorted((hit for hit in hits if asked.fits(hit)), key=lambda hit: -hit.weight)
    named = [hit for hit in fitting if asked.names(hit)]
    others = [hit for hit in fitting if not asked.names(hit) and not is_longer_word(hit.name, asked.name)]
    if not named and not others:
        where = f" in {', '.join(asked.qualifiers)}" if asked.qualifiers else ""
        advice = "check the spelling, use the local or the English name, put region or country after a comma"
        raise Failure("place_not_found", f"The geocoder knows no {asked.name!r}{where}; {advice}.", tried=tried)
    best = (named or others)[0]
    rivals = [hit for hit in (named or others)[1:] if hit.weight >= RIVAL_SHARE * best.weight]
    rivals += [hit for hit in others if named and RIVAL_SHARE * hit.weight > best.weight]
    rivals = [hit for hit in rivals if hit.is_apart_from(best)]
    if rivals or not is_trusted(asked, best):
        raise place_ambiguous(asked, [best, *rivals])
    return best


def is_longer_word(found: str, asked: str) -> bool:
    """Xianyang for Xian: the geocoder matches beginnings. Kansas City for Kansas is another matter."""
    begins_alike = fold(found).startswith(fold(asked))
    return begins_alike and (fold(found[: len(asked)]) != fold(asked) or found[len(asked) :][:1].isalnum())


def is_trusted(asked: Asked, best: Place) -> bool:
    """Whether it may be taken without asking back; what is only offered can be asked for with region and country."""
    if asked.spells(best):  # many a village without known inhabitants bears a big city's name
        return best.weight > 0 or best.feature_code is None or bool(asked.qualifiers)
    if (suffix := HAN_SUFFIX.search(asked.name)) and suffix[1] != "市":  # 西安区 and 吉林省 are not the cities
        return suffix[1] in "县縣区區" and best.feature_code not in (None, "PPLC", "PPLA", "PPLA2")
    if asked.names(best):
        return best.weight >= KNOWN_WEIGHT or bool(asked.qualifiers)
    return best.weight >= FAMOUS_WEIGHT and not fold(best.name).startswith(fold(asked.name))


def place_ambiguous(asked: Asked, places: list[Place]) -> Failure:
    """Names what there is, each so that it can be asked for."""
    labels = [place.label() for place in places[:CANDIDATES_MOST]]
    candidates = [place.label(fully=labels.count(label) > 1) for place, label in zip(places, labels, strict=False)]
    message = f"{asked.text!r} is no clear place; search again with the candidate that is meant, in full."
    return Failure("place_ambiguous", message, candidates=candidates)


class FoundPlace(Place):
    """The place that was meant."""

    matched: Literal["name", "spelling", "other name"] = Field(description="How the query led to this place")
    attribution: str = PLACE_ATTRIBUTION


class Weather(BaseModel):
    """The weather of one local day."""

    date: str = Field(description="The place's own day, YYYY-MM-DD")
    condition: Condition = Field(description="rain from 1 mm of liquid water on")
    high: float | None = Field(description="Highest temperature in °C; null if unknown")
    low: float | None = Field(description="Lowest temperature in °C; null if unknown")
    weather_code: int | None = Field(description="WMO code of the day's severest hour")
    precipitation_mm: float | None = Field(description="Rain, showers and melted snow in mm")
    liquid_mm: float | None = Field(description="Rain and showers in mm")
    precipitation_probability: float | None = Field(description="Highest hourly probability in percent")
    timezone: str | None = Field(description="IANA time zone of the day")
    attribution: str = ATTRIBUTION


def with_letters(text: str) -> str:
    """The text itself, if there is a name in it: the geocoder answers nothing to a single letter."""
    if sum(map(str.isalnum, Asked.read(text).name)) < 2:
        raise ValueError("no name")
    return text


Meteo = Context[OpenMeteo]
PlaceName = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=2, max_length=100),
    AfterValidator(with_letters),
    Field(description="Town or island, 2 to 100 characters, in any language; region or country after a comma"),
]
Latitude = Annotated[float, Field(ge=-90, le=90, description="Degrees north, -90 to 90")]
Longitude = Annotated[float, Field(ge=-180, le=180, description="Degrees east, -180 to 180")]
IsoDay = Annotated[
    str,
    Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$", description="Day at the place as YYYY-MM-DD, such as 2026-09-15"),
    AfterValidator(real_day),
]


async def search_location(name: PlaceName, ctx: Meteo) -> FoundPlace:
    """Finds the one town or island of a name."""
    meteo, asked = ctx.request_context.lifespan_context, Asked.read(name)
    try:
        async with asyncio.timeout(meteo.limit_s(SEARCH_SHARE)):
            hits, tried = await geocode(meteo, asked)
    except TimeoutError:
        raise Failure("timeout", "The geocoder did not answer in time; try again later.") from None
    best = choose(asked, hits, tried)
    matched = "name" if asked.spells(best) else "spelling" if asked.names(best) else "other name"
    return FoundPlace(**best.model_dump(), matched=matched)


async def get_weather(latitude: Latitude, longitude: Longitude, date: IsoDay, ctx: Meteo) -> Weather:
    """Reads one local day from the forecast."""
    meteo = ctx.request_context.lifespan_context
    where = {"latitude": latitude, "longitude": longitude, "timezone": "auto"}
    body = await meteo.ask("forecast", **where, forecast_days=16, daily=",".join(Day.model_fields))
    days, zone = days_of(body)
    if date not in days:
        raise await out_of_window(meteo, where, date, min(days), max(days))
    day = read_day(days[date])
    condition = condition_of(day)
    if condition is None:
        raise Failure("weather_unknown", f"Open-Meteo has no weather for {date} at this place; don't assume any.")
    return Weather(
        date=date,
        condition=condition,
        high=day.temperature_2m_max,
        low=day.temperature_2m_min,
        weather_code=None if day.weather_code is None else int(day.weather_code),
        precipitation_mm=day.precipitation_sum,
        liquid_mm=liquid_mm(day),
        precipitation_probability=day.precipitation_probability_max,
        timezone=zone,
    )


def days_of(body: Any) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Each day's columns by ISO date, and the time zone; a column may be missing or short."""
    try:
        daily, zone = body["daily"], body.get("timezone")
        columns = {name: column for name in Day.model_fields if (column := daily.get(name)) is not None}
        days = {
            real_day(day): {name: column[i] for name, column in columns.items() if i < len(column)}
            for i, day in enumerate(daily["time"])
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        days, zone = {}, None
    if not days:
        raise Failure("bad_response", "Open-Meteo's answer holds no days; try again later.")
    return days, zone if isinstance(zone, str) else None


def read_day(values: dict[str, Any]) -> Day:
    """The day's values, each a number or none."""
    try:
        return Day(**values)
    except ValidationError:
        raise Failure("bad_response", "Open-Meteo sent values that are no numbers; try again later.") from None


# The archive's part: how often it rained around that calendar day. It informs; it is no forecast.
ARCHIVE_FIRST_YEAR = 1940
ARCHIVE_LAG_DAYS = 7  # ERA5 comes about five days late
ARCHIVE_YEARS = 10
ARCHIVE_REACH_DAYS = 3


async def out_of_window(meteo: OpenMeteo, where: dict[str, Any], day: str, first: str, last: str) -> Failure:
    """Says which days are open, and how often it rained in other years if the archive answers in time."""
    rain: dict[str, Any] = {}
    with suppress(Failure, ValueError, OverflowError):  # poorer, but the same
        rain = await past_rain(meteo, where, past_spans(date.fromisoformat(day), date.fromisoformat(first)))
    message = f"The forecast covers {first} to {last} at this place, not {day}; don't assume any weather for it."
    return Failure("out_of_forecast_window", message, first_date=first, last_date=last, **rain)


def past_spans(day: date, first_open: date) -> list[tuple[date, date]]:
    """The week around that calendar day in the last ten years that are complete."""
    end = min(day, first_open) - timedelta(days=ARCHIVE_LAG_DAYS)
    reach = timedelta(days=ARCHIVE_REACH_DAYS)
    centres = [same_day(day, year) for year in range(end.year, ARCHIVE_FIRST_YEAR, -1)]
    return [(centre - reach, centre + reach) for centre in centres if centre + reach <= end][:ARCHIVE_YEARS]


def same_day(day: date, year: int) -> date:
    """29 February falls on the 28th in most years."""
    leap_day = (day.month, day.day) == (2, 29)
    return date(year, 2, 28) if leap_day else day.replace(year=year)


async def past_rain(meteo: OpenMeteo, where: dict[str, Any], spans: list[tuple[date, date]]) -> dict[str, Any]:
    """Share of wet days and their number, from one request: comma-separated spans give one object each."""
    query = where | {"daily": "precipitation_sum", "models": "era5"}
    for i, name in enumerate(("start_date", "end_date")):
        query[name] = ",".join(span[i].isoformat() for span in spans)
    body = await meteo.ask("archive", **query) if spans else []
    parts = body if isinstance(body, list) else [body]
    days = [read_day(values) for part in parts for values in days_of(part)[0].values()]
    known_mm = [day.precipitation_sum for day in days if day.precipitation_sum is not None]
    if not known_mm:
        return {}
    wet = sum(mm >= WET_DAY_MM for mm in known_mm)
    return {"rainy_share": round(wet / len(known_mm), 2), "rainy_samples": len(known_mm)}


class StrictTool(Tool):
    """The SDK's tool, except that it refuses arguments it doesn't know and says what it expected."""

    @classmethod
    def of(cls, fn: Any, description: str) -> "StrictTool":
        """From an async function; the description is written for weak models too."""
        hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=True)
        tool = cls.from_function(fn, description=description, annotations=hints)
        arguments = tool.fn_metadata.arg_model
        arguments.model_config["extra"] = "forbid"
        arguments.model_rebuild(force=True)
        tool.parameters = arguments.model_json_schema()
        return cls(**dict(tool))

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        """Refuses bad arguments in our own words: pydantic's hold addresses."""
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            raise ToolError(f"Error executing tool {self.name}: {self.bad_arguments(error)}") from None
        return await super().run(arguments, context, convert_result)

    def bad_arguments(self, error: ValidationError) -> Failure:
        """The first fault with what was expected instead."""
        fault = error.errors()[0]
        field, known = str(fault["loc"][0]), self.parameters["properties"]
        expected = known[field]["description"] if field in known else f"no argument but {', '.join(known)}"
        value = json.dumps(fault["input"], ensure_ascii=False, default=str)[:80]
        received = "nothing" if fault["type"] == "missing" else value
        message = f"{self.name}: {field} is wrong; expected {expected}; received {received}."
        return Failure("bad_arguments", message, field=field, expected=expected, received=received)


SEARCH_DESCRIPTION = (
    "Finds the coordinates and time zone of one town or island by name. Use it before get_weather. Not for countries,"
    " hotels, addresses or weather. Fails with place_not_found (try another spelling) or place_ambiguous (search"
    " again with one of its candidates)."
)
WEATHER_DESCRIPTION = (
    f"Gives the weather forecast of one day at coordinates: condition ({', '.join(get_args(Condition))}) and high in"
    " °C. Take the coordinates from search_location, don't guess them. Covers about 16 days from today; not for past"
    " or later days: those fail with out_of_forecast_window, which names the open dates. weather_unknown means no"
    " value."
)


def build_server(settings: Settings, transport: httpx.AsyncBaseTransport | None = None) -> MCPServer[OpenMeteo]:
    """The server with its two tools; a transport stands in for the network."""

    def lifespan(_: MCPServer[OpenMeteo]) -> AbstractAsyncContextManager[OpenMeteo]:
        return open_meteo(settings, transport)

    for noisy in ("httpx", "httpcore"):  # they log addresses, and an address can hold the key
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return MCPServer(
        "open-meteo",
        title="Places and weather",
        version="1.0.0",
        tools=[StrictTool.of(search_location, SEARCH_DESCRIPTION), StrictTool.of(get_weather, WEATHER_DESCRIPTION)],
        lifespan=lifespan,
        log_level="WARNING",
    )


@asynccontextmanager
async def open_meteo(settings: Settings, transport: httpx.AsyncBaseTransport | None) -> AsyncIterator[OpenMeteo]:
    """The door with its one HTTP client, for as long as the server runs."""
    limit = httpx.Timeout(settings.tool_timeout_s, connect=min(CONNECT_TIMEOUT_S, settings.tool_timeout_s))
    try:
        client = httpx.AsyncClient(timeout=limit, transport=transport)
    except (httpx.InvalidURL, ImportError, ValueError, OSError):
        # httpx 0.28 stumbles over NO_PROXY=[::1], and SOCKS needs a package: an error, not a dead process.
        client = httpx.AsyncClient(transport=httpx.MockTransport(proxy_failure))
    async with client:
        with closing(OpenMeteo(client, settings)) as meteo:
            yield meteo


def proxy_failure(_: httpx.Request) -> httpx.Response:
    """Every request fails as the client itself did."""
    raise httpx.ProxyError("unusable proxy settings")


class Replay(httpx.AsyncBaseTransport):
    """Answers from sample files in Open-Meteo's own formats, so that all else runs as it does live.

    The directory holds `search.json` (an answer per language), `forecast.json` and `archive.json` (lists of answers).
    A `scene.json` may name a `base` for files that are missing, and `faults` to give first: {"kind": "forecast",
    "request": 1, "status": 429, "headers": {...}, "body": {...}}; kinds and their requests are counted from 1.
    """

    def __init__(self, directory: Path, today: date | None) -> None:
        self._faults: list[dict[str, Any]] = []
        self._asked: defaultdict[str, int] = defaultdict(int)
        base = directory
        if (directory / "scene.json").exists():
            scene = json.loads((directory / "scene.json").read_text(encoding="utf-8"))
            base, self._faults = directory / scene.get("base", "."), scene.get("faults", [])
        self._samples: dict[str, Any] = {}
        for kind in HOSTS:
            own = directory / f"{kind}.json"
            file = own if own.exists() else base / f"{kind}.json"
            self._samples[kind] = json.loads(file.read_text(encoding="utf-8"))
        first = date.fromisoformat(self._samples["forecast"][0]["daily"]["time"][0])
        self._shift = today - first if today else timedelta(0)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """A fault where the scene has one for this request, else the sample."""
        kind, query = request.url.path.rsplit("/", 1)[-1], request.url.params
        self._asked[kind] += 1
        for fault in self._faults:
            if (fault["kind"], fault.get("request", 1)) == (kind, self._asked[kind]):
                body = fault.get("body", "")
                text = body if isinstance(body, str) else json.dumps(body)
                return httpx.Response(fault["status"], headers=fault.get("headers"), text=text)
        return httpx.Response(200, json=self._search(query) if kind == "search" else self._nearest(kind, query))

    def _search(self, query: httpx.QueryParams) -> dict[str, Any]:
        """As the geocoder matches: the language's index, beginnings from three characters on, apostrophes kept."""
        name, index = query["name"].casefold(), self._samples["search"].get(query["language"], {"results": []})
        found = [
            item
            for item in index["results"]
            if (known := item["name"].casefold()) == name or (len(name) > 2 and known.startswith(name))
        ]
        return {"results": found} if found else {}

    def _nearest(self, kind: str, query: httpx.QueryParams) -> Any:
        latitude, longitude = float(query["latitude"]), float(query["longitude"])

        def distance(sample: Any) -> float:
            return float(abs(sample["latitude"] - latitude) + abs(sample["longitude"] - longitude))

        nearest = min(map(distance, self._samples[kind]))
        if nearest > 1:
            return {"error": True, "reason": "No data is available for this location"}
        found = [sample for sample in self._samples[kind] if distance(sample) == nearest]
        return found if kind == "archive" else self._shifted(found[0])

    def _shifted(self, sample: dict[str, Any]) -> dict[str, Any]:
        days = [date.fromisoformat(day) + self._shift for day in sample["daily"]["time"]]
        return sample | {"daily": sample["daily"] | {"time": [day.isoformat() for day in days]}}


def bearer(app: ASGIApp, token: str) -> ASGIApp:
    """Lets in who brings the token."""

    async def gate(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            sent = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(sent, f"Bearer {token}".encode()):
                refusal = PlainTextResponse("Bearer token missing or wrong", 401, {"WWW-Authenticate": "Bearer"})
                await refusal(scope, receive, send)
                return
        await app(scope, receive, send)

    return gate


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_hosts(host: str) -> TransportSecuritySettings:
    """The Host headers that the bind address implies; the SDK by itself checks loopback only."""
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
    if host in ("0.0.0.0", "::"):  # noqa: S104 - asked for by --host, and refused without a token
        names |= {socket.gethostname(), socket.getfqdn()}
    hosts = [pattern for name in sorted(names) for pattern in (name, f"{name}:*")]
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in hosts]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


def listen(host: str, port: int) -> socket.socket:
    """Takes the address before anything else starts, so that a taken one is a bad option like any other."""
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def serve_http(server: MCPServer[OpenMeteo], host: str, listener: socket.socket, token: str | None) -> None:
    """Streamable HTTP at /mcp, each request on its own."""
    security = allowed_hosts(host)
    app: ASGIApp = server.streamable_http_app(stateless_http=True, json_response=True, transport_security=security)
    if token:
        app = bearer(app, token)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=2)
    for stop in (signal.SIGTERM, signal.SIGINT):  # uvicorn repeats the signal once it has shut down
        signal.signal(stop, lambda *_: sys.exit(0))
    sys.stderr.write(f"Serving MCP on {host} port {listener.getsockname()[1]}, path /mcp\n")
    uvicorn.Server(config).run(sockets=[listener])


class OneLineParser(argparse.ArgumentParser):
    """A bad option is answered with one line."""

    def error(self, message: str) -> Any:
        """Exit code 2, as everywhere."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: list[str] | None = None) -> None:
    """The command line: stdio unless --http is asked for."""
    parser = OneLineParser("mcp_server.py", description="Places and weather from Open-Meteo as MCP tools.")
    parser.add_argument("--http", action="store_true", help="streamable HTTP at /mcp instead of stdio")
    parser.add_argument("--host", default="127.0.0.1", help="beyond loopback TRIP_MCP_TOKEN is required")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--replay", type=Path, metavar="DIR", help="answer from sample files")
    options = parser.parse_args(argv)
    if not 0 <= options.port <= 65535:
        parser.error(f"argument --port: {options.port} is not in 0 to 65535")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    try:
        settings = Settings.read(os.environ)
        if options.http and not settings.token and not is_loopback(options.host):
            parser.error(f"--host {options.host} can be reached by others: set TRIP_MCP_TOKEN")
        transport = Replay(options.replay, settings.today) if options.replay else None
        listener = listen(options.host, options.port) if options.http else None
    except (ValueError, OSError, LookupError) as error:
        parser.error(str(error))
    server = build_server(settings, transport)
    if listener:
        serve_http(server, options.host, listener, settings.token)
    else:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the thread that reads stdin can't be interrupted otherwise
        server.run()


if __name__ == "__main__":
    main()
