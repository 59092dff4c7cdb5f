"""What code can read in a person's sentence, Chinese or English, each thing with the words it was read from.

It serves the guards (a plan that contradicts the words is refused), the rehearsal model (plans from the reading) and
the command line. What it can't read for certain it leaves out: a false contradiction blocks a right plan for ever, a
missed one only leaves the model its say. Weekdays, dates like 03/04/2027, a day without its month and weather beyond
rain, snow, fog, cloud and clear sky are not read on purpose.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from itertools import dropwhile
from typing import Any, Generic, TypeVar

from plan.conditions import CONDITIONS, Condition
from plan.hotels import CATALOGUE, Language, city_named, fold_name
from plan.model import MAX_NIGHTS, RoomCase, RoomRule, RoomType, Trip

T = TypeVar("T")


@dataclass(frozen=True)
class Said(Generic[T]):
    """A value and the words that say it."""

    value: T
    words: str


@dataclass(frozen=True)
class Reading:
    """What a text says, as far as code can tell. None and empty mean: not said, or not clearly."""

    language: Language
    city: Said[str] | None = None
    """As written: 西安, Xi'an."""
    check_in: Said[date] | None = None
    """The first day; where no stay is wanted, the day that is asked about."""
    dates: tuple[Said[date], ...] = ()
    """Every date mentioned, whatever it is for, past ones too."""
    impossible: tuple[str, ...] = ()
    """Words of dates that don't exist, such as 2 月 30 日."""
    nights: Said[int] | None = None
    cases: tuple[Said[RoomCase], ...] = ()
    default: Said[RoomType] | None = None
    """Room for weather that no case names; None where the text doesn't say."""
    room_types: tuple[Said[RoomType], ...] = ()
    conditions: tuple[Said[Condition], ...] = ()
    unclear: frozenset[str] = frozenset()
    """Of city, check_in, nights and rule, those that the text speaks of without settling them."""
    wants_booking: bool = True
    speaks_of_booking: bool = False
    refuses_booking: bool = False
    """It says in so many words that nothing is to be booked."""
    asks_for_change: bool = False
    """It has a word of changing something, whatever it may be."""
    is_question: bool = False
    instead_of: bool = False
    """It names a room that isn't wanted: in a later message, one to be replaced."""
    in_passing: bool = False
    """It only says today, tomorrow or the like, and nothing of a stay: "I'll ask again tomorrow"."""

    @property
    def speaks_of_trip(self) -> bool:
        """Whether it says anything that a plan is made of, clearly or not."""
        otherwise = self.city or self.conditions or self.refuses_booking or self.asks_for_change
        return bool(otherwise or self.speaks_of_stay_or_room)

    @property
    def speaks_of_stay_or_room(self) -> bool:
        """Whether it says when or how long, or which room, clearly or not."""
        return bool(self.dates or self.impossible or self.nights or self.room_types or self.unclear)

    @property
    def rule(self) -> Said[RoomRule] | None:
        """The room rule. Where two rooms go by weather and no default is said, the plainer is the default."""
        rooms = {case.value.room_type for case in self.cases}
        if self.default is None and len(rooms) < 2:
            return None
        default = self.default.value if self.default else min(rooms, key=list(RoomType).index)
        words = [*(case.words for case in self.cases), *([self.default.words] if self.default else [])]
        rule = RoomRule(default=default, when=tuple(case.value for case in self.cases))
        return Said(rule, ", ".join(dict.fromkeys(words)))

    @property
    def unread(self) -> tuple[str, ...]:
        """The parts that a plan needs and that couldn't be read."""
        needed = ("city", "check_in", "nights", "rule") if self.wants_booking else ("city", "check_in")
        return tuple(part for part in needed if getattr(self, part) is None)


MONTHS = ["January", "February", "March", "April", "May", "June", "July"]
MONTHS += ["August", "September", "October", "November", "December"]
ENGLISH = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
HAN = {"〇": 0, "零": 0, "两": 2} | {c: n for n, c in enumerate("一二三四五六七八九", 1)}

# Patterns are matched with lower-case text, so that capitals in them can stand for other parts.
PARTS = {
    "NUM": r"(?:\d\d?|DIGIT?十DIGIT?|DIGIT)",
    "COUNT": rf"(?:\d\d?|DIGIT?十DIGIT?|两|DIGIT|\b(?:{'|'.join(ENGLISH)}|an?)\b)",
    "DIGIT": "[一二三四五六七八九]",
    "ALONE": r"(?:(?<=[周期拜]DIGIT)|(?<![\d一二两三四五六七八九十]))",
    "YEAR": r"(?P<y>(?:19|20)\d\d)(?!\d)",
    "HANYEAR": "[〇零一二三四五六七八九]{4}",
    "DAY": r"(?:the )?(?P<d>\d\d?)ORD",
    "END": r"(?:the )?(?P<e>\d\d?)ORD",
    "ORD": r"(?:st|nd|rd|th)?",
    "MONTHS": r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)",
    "MONTH": r"(?P<m>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may(?! (?:be|have|need|not)\b)|june?|july?"
    r"|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)(?![a-z])",
    "WEEKDAY": r"(?:\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|(?:周|星期|礼拜) ?[一二三四五六日天])",
    "BESIDE": r"(?:,? ?\(?WEEKDAY\)?)?",
    "TO": r"(?:\bto\b|\buntil\b|\btill\b|\bthrough\b|直?到|至|[-–—~/])",
    "NIGHT": r"(?: ?-?nights?\b| ?[个個]? ?(?:晚上?|夜))",
    "BARE": "(?!十|DIGIT)UNCOUNTED",
    # A number before one of these counts things: 9月2晚, September 2 nights.
    "UNCOUNTED": r"(?!\d| ?-?(?:nights?|days?|people|persons?|guests?|adults?|children|hours?"
    r"|weeks?|rooms?|am|pm|km|eur|usd|cny|yuan)\b| ?[%€晚夜天个人元块万间点月年岁度位次])",
}
# Kind, after a colon its value, and pattern. Where two begin at one place, the earlier line wins.
LEXICON = r"""
date         (?:WEEKDAY,? ?)?(?<![\d-])YEAR(?P<s>[-/.])(?P<n>\d\d?)(?P=s)(?P<d>\d\d?)(?!\d)BESIDE
span         (?<![\d/])DAY ?TO ?END (?:of )?MONTH(?:\.?,? YEAR)?
span         \bMONTH\.? DAY ?TO ?END(?![-/]?\d| (?:of )?MONTHS)UNCOUNTED(?:,? YEAR)?
span         (?:(?P<y>\d{4}) ?年 ?)?ALONE(?P<n>NUM) ?月 ?(?P<d>NUM) ?[日号]? ?TO ?(?P<e>NUM) ?[日号]
vague        (?<!\d)\d\d?ORD ?(?:and|or|&|,|/) ?(?:the )?\d\d?ORD (?:of )?MONTH
date         (?:WEEKDAY ?)?(?:(?P<y>\d{4}|HANYEAR) ?年 ?)?ALONE(?P<n>NUM) ?月 ?(?P<d>NUM)(?: ?[日号]|BARE)BESIDE
date         (?:WEEKDAY,? )?(?<![\d/])DAY(?: of)?[ -]?MONTH(?:[.,]{0,2}[ -]?YEAR)?BESIDE
date         (?:WEEKDAY,? )?\bMONTH\.? ?DAY(?![:a-z])UNCOUNTED(?:,? YEAR)?BESIDE
date         (?<![a-z\d.,/:+-])(?P<n>0[1-9]|1[0-2])-(?P<d>[0-3]\d)(?![/:-])UNCOUNTED
about        左右|前后|之间|灵活|\bflexible\b|\bsome ?time\b
about        (?<!how )(?<!what )\b(?:between|around|about)\b(?= (?:the )?(?:\d|MONTHS))
relative:0   \btonight\b|今晚|(?<=\bnights from )today\b|(?<=\bin )today\b(?!')|今天(?=[入住到])
relative:2   \b(?:the )?day after tomorrow\b|(?<!大)后天
relative:1   \btomorrow\b|明[天日晚]
vague        WEEKDAY|\bweekend\b|周末|\b(?:next|last|this) (?:week|month|year)\b|[上下这]个?[周月]|[去明后]年|大后天
vague        (?:推迟|延后|延迟|提前|往[前后]|[早晚]) ?COUNT ?个?(?:天|日|周|星期)
vague        \bCOUNT (?:days?|weeks?) (?:later|earlier)\b|\bin (?:COUNT (?:days?|weeks?)|MONTHS)\b(?! ?\d)
vague        国庆|中秋|春节|元旦|圣诞|\b(?:christmas|easter|new year)\b
vague        顺延|月[底初]|COUNT ?(?:天|周|个?星期|个?月)[之以]?后
some_nights  住 ?COUNT ?(?:天|周)|\bfor COUNT (?:days|weeks?)\b
vague        (?<!\d)\d\d?/\d\d?|(?<!\d)\d\d?\.\d\d?\.|\b\d\d?(?:st|nd|rd|th)\b|ALONENUM ?[日号](?![楼线店])
price        (?<!\d)\d[\d.,]{0,9} ?(?:euros?|eur|dollars?|usd|yuan|元|块钱?|€)?[ /]?(?:(?:a|one|per) night|[每一] ?晚)
price        (?:预算|[每一] ?晚上?) ?(?:不超过|最多|大?约|低于|预算)? ?[一每]?晚? ?[€$¥]? ?\d+
some_nights  \b(?:twenty|thirty|forty|fifty)[ -]?(?:COUNT)?NIGHT
some_nights  COUNTNIGHT (?:or (?:two|three|so|more)|longer|more|extra|earlier|later)\b
some_nights  \b(?:add|plus|extend\w*)(?: (?:it|this|(?:my|the) \w+))?(?: (?:by|for))? COUNT(?: more| extra)?NIGHT
some_nights  (?:延长|延住?|续住?|推迟|提前|[早前后]) ?COUNTNIGHT
some_nights  (?:at least|at most|up to|max|another|至少|最多|不超过|[再多加另]住?) ?COUNT(?: more| extra)?NIGHT
some_nights  COUNT ?(?:TO|or|或者?|、) ?COUNTNIGHT|ALONE(?:两|DIGIT){2}NIGHT|COUNT (?:more|extra|additional) nights?\b
nights       (?<![月第\d.一二两三四五六七八九十])(?<!月 )(?P<c>COUNT)NIGHT
room:suite      (?:\bdeluxe |\bstandard |豪华|标准|行政)?(?:(?<!en[ -])\bsuites?\b|套 ?[房间])
room:deluxe     \bdeluxe\b|豪华 ?(?:客房|大床房|双床房|间|房)
room:standard   \bstandard\b(?! of)|标准? ?间|标准 ?(?:客房|房)|普通 ?[间房]
polite       \bif (?:possible|you can)\b|(?:如果)?可以的话|如果可以|如有可能
polite       \brain or shine\b|(?:不管|无论)(?:天气|下不下雨|晴雨)
dry:rain     \bdry\b
whether      \bwhether\b|\b(?:check|see|find out) if\b|是否|会不会|有没有|是不是
else         \b(?:otherwise|or else|else)\b|否则|要?不然|不下(?:的话|就)|其他(?:情况|天气)|反之
else         \bif (?:not|it (?:doesn't|does not|isn't|is not|won't|will not))\b(?= ?(?:[,.;:]|$|then\b|an?\b))
if           \bunless\b(?=[^.;!?]* (?:then|in (?:which|that) case)\b)|除非(?=[^。；！？]*(?:那就|则|就))
unless       \bunless\b|除非
if           \bif\b|\bwhen\b(?= it)|如果|若是?|要是|假如|的话
or           \bor\b|或者?|、|还是
maybe        天气(?:不太?|很|较)?[好差糟]|\bunlikely\b|\b(?:isn't|is not) (?:forecast|expected|likely|predicted)\b
maybe        \b(?:sold out|available|unavailable|prefer\w*|ideally)\b|没有 ?(?:就|的话|了)|最好|售罄|满房
become       (?:改|换|调整?|变更|挪|推迟|提前|延期?)(?:[期到为至]|成(?!都))+
become       \bmake (?:it|that)\b|\bbut\b(?= (?:on |the )?\d)
become       \b(?:chang|mov|postpon|shift|switch|reschedul|push)\w*(?: (?:it|that|this|(?:the|my) \w+))? to\b
move         \b(?:chang|mov|postpon|shift|switch|reschedul|push)\w*
unfit        不行|不可以|没空|\b(?:doesn't|does not|won't|will not) work\b
not          \b(?:not|no|never|without|cannot|instead of|rather than|\w{2,6}n't)\b
not          不(?!过|错|超|仅|同|论|管|如|丹)|没(?!问题|关系)|(?<!特)别(?!墅)|无(?=[雨雪雾])|取消
out          \bending\b|\bback\b(?= (?:on )?(?:the )?(?:\d|MONTHS))
out          \bcheck(?:ing|s)?[ -]?out\b|\b(?:leav|depart|return)\w*|退房|离店|离开|返程
in           \bcheck(?:ing|s)?[ -]?in\b|\barriv\w*|入住|抵达
from         \b(?:from|start|starting|begin|beginning)\b|从|自
since        起|开始
bound        \b(?:before|after|by|since)\b|[之以]?[前后]
other        \b(?:born|birthday|deadline|fl(?:y|ight)\w*|trains?|meeting|conference|wedding|concert|visa|pay\w*)\b
other        \btoday is\b|今天是|生日|出生|截止|航班|火车|高铁|开会|会议|婚礼|演唱会|签证|付款
other        \b(?:ask|remind|wait)\b|\b(?:try|come|check) (?:again|back)\b|再(?:来?[问查试说]|联系|决定)
to           TO
stop         [!?;。\n]|\.(?!\d)
pause        (?<!\d),|[,:](?!\d)|\bbut\b|而是|但是?
"""


PART = re.compile("|".join(sorted(PARTS, key=len, reverse=True)))


def _pattern(line: str) -> tuple[str, str, re.Pattern[str]]:
    """One line of the lexicon: kind, value, pattern with its parts put in. ASCII: a Latin word may touch Chinese."""
    name, text = line.split(maxsplit=1)
    while (filled := PART.sub(lambda part: PARTS[part[0]], text)) != text:
        text = filled
    kind, _, value = name.partition(":")
    return kind, value, re.compile(text, re.ASCII)


LEXER = (
    *(_pattern(f"condition:{condition} {words.read}") for condition, words in CONDITIONS.items()),
    *(_pattern(line) for line in LEXICON.strip().splitlines()),
)


@dataclass(frozen=True)
class Token:
    """Words of a known kind at their place in the text, with what they stand for."""

    kind: str
    start: int
    end: int
    value: Any = None


def _tidy(text: str) -> str:
    """The text with single spaces; what is quoted as somebody's words is cut from this."""
    return "\n".join(" ".join(line.split()) for line in unicodedata.normalize("NFC", text).splitlines())


def _fold(text: str) -> str:
    """Lower case, half width, straight apostrophes; as long as the text, so that both have the same places."""
    plain = [(c, unicodedata.normalize("NFKC", c).lower()) for c in text]
    return "".join("'" if c in "’‘ʼ`´" else p if len(p) == 1 else c for c, p in plain)


def _number(words: str) -> int:
    """Value of a number in digits, English or Chinese, below a hundred."""
    if words.isdecimal():
        return int(words)
    if words.isascii():
        return ENGLISH.index(words) if words in ENGLISH else 1
    tens, ten, ones = words.rpartition("十")
    return (HAN.get(tens, 1) * 10 if ten else 0) + HAN.get(ones, 0)


def _day(match: re.Match[str], day: str, today: date) -> date | None:
    """The day named by a match; without a year the next such day. None if there is no such day."""
    said = match.groupdict()
    month = _number(said["n"]) if said.get("n") else [name[:3].lower() for name in MONTHS].index(said["m"][:3]) + 1
    year = int("".join(str(HAN.get(c, c)) for c in said["y"])) if said.get("y") else None
    for candidate in [year] if year else range(today.year, today.year + 9):
        try:
            found = date(candidate, month, _number(day))
        except ValueError:
            continue
        if year or found >= today:
            return found
    return None


def _token(kind: str, value: str, match: re.Match[str], today: date) -> Token:
    """What a match stands for. A date that doesn't exist and a span that runs backwards get kinds of their own."""
    meant: Any = value
    if kind == "date":
        meant = _day(match, match["d"], today)
        kind = "date" if meant else "impossible"
    elif kind == "span":
        start = _day(match, match["d"], today)
        meant = (start, _day(match, match["e"], start) if start else None)
        kind = "span" if start and meant[1] and 0 < (meant[1] - start).days <= MAX_NIGHTS else "vague"
    elif kind == "relative":
        kind, meant = "date", today + timedelta(days=int(value))
    elif kind == "nights":
        meant = _number(match["c"])
    elif kind in ("room", "condition", "dry"):
        meant = RoomType(value) if kind == "room" else Condition(value)
    return Token(kind, match.start(), match.end(), meant)


def _tokens(folded: str, today: date) -> list[Token]:
    """The known words in order; of overlapping ones the first stays."""
    found = [(m.start(), rank, m) for rank, (_, _, regex) in enumerate(LEXER) for m in regex.finditer(folded)]
    tokens: list[Token] = []
    for start, rank, match in sorted(found, key=lambda item: item[:2]):
        if start >= (tokens[-1].end if tokens else 0):
            tokens.append(_token(*LEXER[rank][:2], match, today))
    return tokens


def _clauses(tokens: Iterable[Token]) -> list[list[Token]]:
    clauses: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind in ("stop", "pause"):
            clauses.append([])
        else:
            clauses[-1].append(token)
    return clauses


def _beside(clause: Sequence[Token], at: int, folded: str) -> tuple[str, str, str, str]:
    """Kinds before and after in the clause, and the same again where no more than an article stands between."""
    here, none = clause[at], Token("", -9, -9)
    before = clause[at - 1] if at else none
    after = clause[at + 1] if at + 1 < len(clause) else none
    close = at and folded[before.end : here.start].strip() in ("", "the", "on")
    return (
        before.kind,
        after.kind,
        before.kind if close else "",
        after.kind if 0 <= after.start - here.end < 2 else "",
    )


def _change(clause: Sequence[Token], at: int, folded: str) -> str:
    """Whether the words put this value in the place of another (new), or another in its place (old)."""
    kinds = [token.kind for token in clause]
    before, after, right_before, _ = _beside(clause, at, folded)
    moving = "move" in kinds[:at]
    if before == "become" or (moving and right_before == "to"):
        return "new"
    left = moving and (clause[at].kind != "nights" or after == "to")
    return "old" if before == "not" or after == "unfit" or left or "become" in kinds[at:] else ""


def _role(clause: Sequence[Token], at: int, folded: str) -> str:
    """What a date is for, by the words around it."""
    kinds = [token.kind for token in clause]
    before, after, right_before, right_after = _beside(clause, at, folded)
    # In one clause markers stand either before their dates or after them: 入住 9 月 15 日退房 9 月 17 日.
    leading = next(kind for kind in kinds if kind in ("in", "out", "date", "span")) in ("in", "out")
    if (before if leading else after) == "in":
        return "in"
    if "out" in kinds and ("out" in (before, after) or kinds.count("date") + kinds.count("span") == 1):
        return "out"
    if "other" in kinds and "in" not in kinds:
        return "other"
    first = "in" if right_before == "from" or right_after == "since" else "plain"
    bound = "out" if right_before == "to" else "other" if "bound" in (right_before, right_after) else ""
    return _change(clause, at, folded) or bound or first


def _settled(said: Sequence[tuple[str, Said[T]]], roles: Sequence[str]) -> Said[T] | None:
    """The one value said in the first of these roles in which anything was said."""
    for role in roles:
        if group := [one for its_role, one in said if its_role == role]:
            return group[0] if len({one.value for one in group}) == 1 else None
    return None


def _stay(tokens: Sequence[Token], folded: str, words: Callable[[Token], str], today: date) -> dict[str, Any]:
    """Check-in and nights, and every date that is mentioned."""
    dates: list[tuple[str, Said[date]]] = []
    nights: list[tuple[str, Said[int]]] = []
    for clause in _clauses(tokens):
        for at, token in enumerate(clause):
            if token.kind in ("date", "span"):
                start, *end = token.value if token.kind == "span" else (token.value,)
                dates.append((_role(clause, at, folded), Said(start, words(token))))
                dates += [("out", Said(day, words(token))) for day in end]
            elif token.kind == "nights" and token.value:
                nights.append((_change(clause, at, folded) or "plain", Said(token.value, words(token))))
    kinds = {token.kind for token in tokens}
    roles = ("new", "in") if kinds & {"vague", "impossible"} else ("new", "in", "plain")
    check_in = _settled([one for one in dates if one[1].value >= today], () if "about" in kinds else roles)
    stay = None if "some_nights" in kinds else _settled(nights, ("new", "plain"))
    out = _settled(dates, ("out",))
    if check_in and out and not nights and "some_nights" not in kinds:
        length = (out.value - check_in.value).days
        between = " – ".join(dict.fromkeys((check_in.words, out.words)))
        stay = Said(length, between) if 0 < length <= MAX_NIGHTS else None
    spoken = {"check_in": dates or kinds & {"vague", "impossible"}, "nights": nights or "some_nights" in kinds}
    return {
        "check_in": check_in,
        "nights": stay,
        "dates": tuple(one for _, one in dates),
        "impossible": tuple(words(token) for token in tokens if token.kind == "impossible"),
        "unclear": {part for part, read in (("check_in", check_in), ("nights", stay)) if spoken[part] and not read},
    }


LETTERS = {"room": "r", "condition": "c", "dry": "n", "if": "i", "else": "e", "or": "o", "maybe": "m"}
LETTERS |= {"stop": "/", "pause": ","}
# A rule is read from the order of its kinds, a letter each; x is a room not wanted, n a condition denied.
SHAPES = re.compile(
    r"(?P<case>i?c(?:oc)*i?,?r|ri?c(?:oc)*i?|r,ic(?:oc)*i?(?!,?r))|(?P<denied>i?ni?,?r|ri?n|r,i?n(?!,?r))"
    r"|(?P<default>e,?r|re|^r)|(?P<skip>[/,]+|(?<![a-z])x(?![a-z])|(?<![^/])c(?![^/]))"
)


def _letters(tokens: Sequence[Token]) -> list[tuple[str, Token]]:
    """The tokens that a rule is made of with their letters, negations drawn into what they deny."""
    letters: list[tuple[str, Token]] = []
    held: Token | None = None
    for token in tokens:
        if held and token.kind in ("room", "condition") and token.start - held.end <= 16:
            if held.kind != "whether":
                letters.append(("n" if token.kind == "condition" else "x", replace(token, start=held.start)))
        elif token.kind in LETTERS:
            # "Not dry" and "not if it rains" say something, but no rule.
            odd = held is not None and held.kind != "whether" and token.kind in ("if", "dry")
            letters.append(("m" if odd else LETTERS[token.kind], token))
        elif held and held.kind != "whether" and token.kind == "not":
            letters.append(("m", token))
        held = token if token.kind in ("not", "unless", "whether") else None
    around = zip(["", *(one for one, _ in letters)], letters, [*(one for one, _ in letters[1:]), ""], strict=False)
    kept = [item for before, item, after in around if item[0] != "o" or {before, after} <= {"r", "c"}]
    return list(dropwhile(lambda item: item[0] in "/,", kept))


def _parts(
    letters: Sequence[tuple[str, Token]], text: str
) -> list[tuple[str, Said[RoomType], list[Condition]]] | None:
    """The rule's parts in order: shape, room and its words, conditions. None if some part has no known shape."""
    shape = "".join(letter for letter, _ in letters)
    parts, at = [], 0
    while at < len(shape):
        match = SHAPES.match(shape, at)
        if match is None:
            return None
        mine = [(letter, token) for letter, token in letters[at : match.end()] if letter != ","]
        at = match.end()
        if match.lastgroup != "skip":
            room = next(token.value for letter, token in mine if letter == "r")
            words = text[min(token.start for _, token in mine) : max(token.end for _, token in mine)]
            conditions = [token.value for letter, token in mine if letter in "cn"]
            parts.append((str(match.lastgroup), Said(room, words), conditions))
    return parts


def _rule(letters: Sequence[tuple[str, Token]], text: str) -> dict[str, Any]:
    """Cases and default of the room rule; neither, and unclear, where the text has a shape that isn't known."""
    rooms = {token.value: text[token.start : token.end] for letter, token in letters if letter == "r"}
    if len(rooms) == 1 and {letter for letter, _ in letters} <= set("rx/,"):
        return {"default": next(Said(room, words) for room, words in rooms.items())}
    parts = _parts(letters, text) if rooms else None
    unclear = {"unclear": {"rule"} if {letter for letter, _ in letters} & set("rxn") else set()}
    if parts is None:
        return unclear
    cases = [(condition, room) for kind, room, conditions in parts if kind == "case" for condition in conditions]
    defaults = [room for kind, room, _ in parts if kind == "default"]
    denied = [(conditions[0], room) for kind, room, conditions in parts if kind == "denied"]
    if denied:
        # "Not in rain: A" is a rule only with its other half: a case for rain, or what holds otherwise.
        condition, room = denied[0]
        cases, defaults = (cases, defaults) if cases else ([(condition, other) for other in defaults], [])
        defaults = [*defaults, room] if [c for c, _ in cases] == [condition] else []
    if len(defaults) > 1 or len(denied) > len(defaults) or len({c for c, _ in cases}) < len(cases):
        return unclear
    found = [Said(RoomCase(condition=c, room_type=r.value), r.words) for c, r in cases]
    return {"cases": tuple(found), "default": defaults[0] if defaults else None}


NAME = r"[A-ZÀ-ÞĀ-Ž][^\W\d_\u2e80-\u9fff]*(?:['’-](?!s\b)[^\W\d_\u2e80-\u9fff]+)*"
PLACE = rf"(?:St\. )?{NAME}(?: (?:(?:de|la|le|of|upon|am|an|der|di|do|da|del) )?{NAME})*"
AFTER_PLACE = rf" ?(?:[,:，：。.;\n\d\u4e00-\u9fff]|$|(?:for|on|from|in|{'|'.join([*ENGLISH, *MONTHS])})\b)"
AFTER_HAN = (
    r" ?(?:[一二三四五六七八九十]{1,3} ?月|\d|明天|后天|今晚|入?住|玩|旅游|出差|的?天气|的?酒店"
    r"|[一二两三四五六七八九十]+ ?个?[晚夜]|[,，] ?(?:\d|明天|后天|[一二三四五六七八九十]{1,3} ?月))"
)
GONE_TO = (
    re.compile(rf"\b(?:in|to|visit|visiting|around|near) (?:the )?({PLACE})"),
    re.compile(rf"(?:去|前往|飞往)([\u4e00-\u9fff·]{{2,9}}?)(?={AFTER_HAN})"),
)
STARTS_WITH = (
    re.compile(rf"(?:^|\n|[,.;:] )({PLACE})(?={AFTER_PLACE})"),
    re.compile(rf"(?:^|[\n,，。;；:：])([\u4e00-\u9fff·]{{2,9}}?)(?={AFTER_HAN})"),
)
CITY_NAMES = [name.lower() for city in CATALOGUE for name in (city.zh, city.en, *city.spellings)]
KNOWN = re.compile(
    "|".join(rf"\b{n}\b".replace("'", "['’]?") if n.isascii() else rf"{n}(?!时间)" for n in CITY_NAMES),
    re.ASCII | re.IGNORECASE,
)
LEADS = re.compile(
    r"(?:(?:book|find|check|please|get|reserve|hello|hi|hey|thanks|plan|the|i|we|just|only)(?: |$))+"
    r"|(?:我们?|请|帮|给|想要?|要|去|预?订|查一?下?|在|到|看看?|麻烦|先|一下|下个?|告诉|只|再|住|不[要订用])+",
    re.IGNORECASE,
)
NO_PLACE = re.compile(
    rf"(?:{'|'.join(MONTHS)})\b|\w+day\b|(?:room|hotel|trip|date|city|nights?)\b|.*(?:当天|那天|当日|天气|酒店|时间|日[期子]|预算|[你您]好|好[的吧]|谢谢|可以|那就)",
    re.IGNORECASE,
)
ORIGIN = re.compile(r"(?:\bfrom|\bleav(?:e|ing)|从|离开) ?$")
NO_BOOKING = re.compile(
    r"\b(?:don't|do not|without|no need to|not) (?:book|booking|reserve)\b(?! (?:before|until|unless|if|more))"
    r"|\bno (?:booking|reservation)s?\b|\b(?:just|only) (?:tell|check|show|want to know|the weather|curious|asking)\b"
    r"|\bcancel (?:everything|(?:my|the) trip)\b|\b(?:don't|do not) want to go(?! \w)|\bno hotel\b(?! \w+ence)"
    r"|\bhold off\b"
    r"|取消(?:这次|这个|我的)?(?:行程|旅行|旅程)|不(?:想)?去了(?!，?去)"
    r"|(?:不|别|无需|不用|不必|不要|不想)(?:预?订|预定|下单)(?!的)|[只仅](?:是|想|要)?(?:查|看|问|告诉|想知道|了解)",
    re.ASCII,
)
QUESTION = re.compile(r"\?|吗|多少|为什么|\b(?:why|how much|what would)\b", re.ASCII)
CHANGE = re.compile(
    r"[改换]|取消|推迟|提前|\b(?:chang|switch|mov|cancel|instead|rather|different|another)\w*", re.ASCII
)
BOOKING = re.compile(r"\b(?:book|reserv|stay|hotel|room)\w*|订|预定|住|酒店|房", re.ASCII)
WEATHER = re.compile(r"\b(?:weather|forecast|temperature)\b|天气|气温", re.ASCII)


def _named(patterns: Iterable[re.Pattern[str]], text: str, tokens: Sequence[Token]) -> dict[str, str]:
    """Names that patterns find where nothing else was read, by their folded form; not those one comes from."""
    small = ("to", "from", "bound", "since", "other", "stop", "pause")
    taken = {place for token in tokens if token.kind not in small for place in range(token.start, token.end)}
    found: dict[str, str] = {}
    for match in (match for pattern in patterns for match in pattern.finditer(text)):
        start, end = match.span(match.lastindex or 0)
        lead = LEADS.match(text, start, end)
        start = lead.end() if lead else start
        free = end - start > 1 and taken.isdisjoint(range(start, end))
        if free and not NO_PLACE.match(text, start, end) and not ORIGIN.search(text, max(0, start - 10), start):
            found.setdefault(fold_name(text[start:end]), text[start:end])
    return found


def _city(text: str, tokens: Sequence[Token]) -> dict[str, Any]:
    """The one place the text names; unclear if it names several. What a sentence starts with is a second guess."""
    found = _named((KNOWN, *GONE_TO), text, tokens) or _named(STARTS_WITH, text, tokens)
    whole = [name for key, name in found.items() if not any(key != other and key in other for other in found)]
    if len(whole) > 1:
        return {"unclear": {"city"}}
    return {"city": Said(whole[0], whole[0])} if whole else {}


@lru_cache(maxsize=64)
def read_goal(text: str, today: date) -> Reading:
    """Everything that can be read in a goal, or in a later message of the person."""
    text = _tidy(text)
    folded = _fold(text)
    tokens = _tokens(folded, today)
    letters = _letters(tokens)

    def words(token: Token) -> str:
        return text[token.start : token.end].strip(" ,，")

    parts = (_stay(tokens, folded, words, today), _rule(letters, text), _city(text, tokens))
    read = {name: value for part in parts for name, value in part.items()}
    read["unclear"] = frozenset[str]().union(*(part.get("unclear", ()) for part in parts))
    rooms = tuple(Said(token.value, words(token)) for letter, token in letters if letter == "r")
    refused = [match.end() for match in NO_BOOKING.finditer(folded)]
    refused = [end for end in refused if not any(t.kind == "room" and 0 <= t.start - end < 4 for t in tokens)]
    speaks = bool(rooms or read["nights"] or BOOKING.search(folded))
    han, latin = re.findall(r"[\u4e00-\u9fff]", text), re.findall(r"[A-Za-z]+", text)
    return Reading(
        language="zh" if han and len(han) >= len(latin) else "en",
        room_types=rooms,
        conditions=tuple(Said(token.value, words(token)) for token in tokens if token.kind == "condition"),
        wants_booking=not refused and (speaks or not WEATHER.search(folded)),
        speaks_of_booking=speaks,
        refuses_booking=bool(refused) or is_no(text),
        asks_for_change=CHANGE.search(folded) is not None,
        is_question=QUESTION.search(folded) is not None,
        instead_of="x" in dict(letters),
        in_passing=_in_passing(tokens, folded),
        **read,
    )


OF_A_STAY = {"become", "move", "in", "from", "to", "nights", "room"}


def _in_passing(tokens: Sequence[Token], folded: str) -> bool:
    """Whether the only day is one like tomorrow, in a sentence that has more to it and says nothing of a stay."""
    days = [token for token in tokens if token.kind in ("date", "span")]
    if len(days) != 1 or {token.kind for token in tokens} & OF_A_STAY:
        return False
    said = folded[days[0].start : days[0].end]
    return not any(map(str.isdigit, said)) and len(said) < len(folded.strip(" .!。！吧"))


def amended(earlier: Reading, later: Reading) -> Reading:
    """What is wanted after a further message: it replaces what it speaks of, also where it speaks unclearly."""

    def kept(part: str) -> Any:
        return getattr(later, part) or (None if part in later.unclear else getattr(earlier, part))

    if later.instead_of and earlier.cases:
        later = replace(later, cases=(), default=None, unclear=later.unclear | {"rule"})
    if later.is_question and not later.asks_for_change:  # what is only asked about is no order, nor is it denied
        spoken = {"check_in": later.dates, "nights": later.nights, "rule": later.room_types}
        asked = frozenset(part for part, said in spoken.items() if said)
        unclear = later.unclear | asked
        later = replace(later, dates=(), check_in=None, nights=None, cases=(), default=None, unclear=unclear)
    if later.in_passing:
        later = replace(later, dates=(), check_in=None, unclear=later.unclear | {"check_in"})
    if later.dates and not (later.check_in or later.nights):  # it may be the end of the stay that they move
        later = replace(later, unclear=later.unclear | {"nights"})
    cases, default = later.cases, later.default
    if default is None and "rule" not in later.unclear:
        own = {case.value.condition for case in cases}
        cases += tuple(case for case in earlier.cases if case.value.condition not in own)
        default = earlier.default
    dated = later if later.dates or later.impossible else earlier
    return replace(
        later,
        language=earlier.language,
        dates=dated.dates,
        impossible=dated.impossible,
        city=kept("city"),
        check_in=kept("check_in"),
        nights=kept("nights"),
        cases=cases,
        default=default,
        wants_booking=_still_wants(earlier, later),
    )


def _still_wants(earlier: Reading, later: Reading) -> bool:
    """Whether a booking is wanted after a message; a word of the weather ends that only for another day or place."""
    if later.refuses_booking or (not later.wants_booking and (later.dates or later.city)):
        return False
    return earlier.wants_booking or later.speaks_of_booking


def read_date(text: str, today: date) -> date:
    """One date on its own, today or later. Says in one sentence why a text isn't one."""
    folded, shown = _fold(_tidy(text)), repr(" ".join(text.split())[:40])
    token = next((t for t in _tokens(folded, today) if (t.start, t.end) == (0, len(folded))), None)
    if token and token.kind == "impossible":
        raise ValueError(f"there is no day {shown} in the calendar")
    if token is None or token.kind != "date":
        raise ValueError(f"{shown} can't be read as a date: write it like 2026-10-01, 10-01, 10月1日 or 1 October")
    day: date = token.value
    if day < today:
        raise ValueError(f"{shown} has passed: today is {today.isoformat()}")
    return day


def date_in_words(day: date, language: Language, today: date) -> str:
    """A date as people write it; with its year unless it is a day of this year that is still to come."""
    short = f"{day.month} 月 {day.day} 日" if language == "zh" else f"{day.day} {MONTHS[day.month - 1]}"
    if day.year == today.year and day >= today:
        return short
    return f"{day.year} 年 {short}" if language == "zh" else f"{short} {day.year}"


def contradictions(reading: Reading, trip: Trip, rule: RoomRule) -> tuple[str, ...]:
    """Where a plan differs from what the words say, a sentence each. What wasn't read isn't judged."""
    said: list[tuple[str, str, str]] = []
    named, meant = city_named(reading.city.value) if reading.city else None, city_named(trip.city)
    if reading.city and named and meant and named != meant:
        said.append((reading.city.words, f"names {named.en}", f"goes to {meant.en}"))
    if reading.impossible and not reading.dates:
        said.append((reading.impossible[0], "is no day of the calendar", f"has check_in {trip.check_in}"))
    if reading.check_in and (day := reading.check_in.value) != trip.check_in:
        said.append((reading.check_in.words, f"says check_in {day}", f"has check_in {trip.check_in}"))
    if reading.nights and reading.nights.value != trip.nights:
        said.append((reading.nights.words, f"says nights {reading.nights.value}", f"has nights {trip.nights}"))
    for case in reading.cases:
        condition, room = case.value.condition, case.value.room_type
        if (given := rule.room_for(condition)) != room:
            said.append((case.words, f"asks for {room} in {condition}", f"gives {given}"))
    if reading.default:
        others = [c for c in Condition if c not in {case.value.condition for case in reading.cases}]
        wrong = [f"{rule.room_for(c)} in {c}" for c in others if rule.room_for(c) != reading.default.value]
        weather = "any other" if reading.cases else "any"
        if wrong:
            wanted = f"asks for {reading.default.value} in {weather} weather"
            said.append((reading.default.words, wanted, f"gives {', '.join(wrong)}"))
    return tuple(f'"{words}" {wanted}, but the plan {planned}' for words, wanted, planned in said)


COURTESIES = "please|thanks|thank you|i|it|谢谢|谢谢你|请"
YES = (
    "yes|y|yeah|yep|sure|ok|okay|confirm|confirmed|agree|agreed|approve|approved|go ahead|book it|do it|of course"
    "|是|是的|好|好的|好吧|好啊|好呀|行|行吧|可以|可以的|确认|确认预订|同意|对|没问题|订|订吧|就订这个|批准"
)
NO = (
    "no|n|nope|nah|cancel|cancel it|cancel that|cancel the booking|decline|dont|do not|dont book|dont book it"
    "|do not book|dont book anything|do not book anything|no booking|stop|不|不了|不要|不要了|不用|不用了"
    "|不需要了|不要订|不要订了|先别订|先不订|先不订了|别订了|不想订了|取消预订|取消订单"
    "|不行|不可以|不好|不同意|不订|不订了|不是|别|别订|否|取消|取消吧|算了|算了吧|拒绝"
)


def _answer(core: str) -> re.Pattern[str]:
    """A whole answer of these words and courtesies; possessive, so that no text takes long to refuse."""
    phrases = "|".join(sorted(f"{core}|{COURTESIES}".split("|"), key=len, reverse=True))
    return re.compile(rf"(?=.*(?<![^ ])(?:{core})(?![^ ]))(?:(?:{phrases})(?: |$))++")


YES_ANSWER, NO_ANSWER = _answer(YES), _answer(NO)


def _plain(text: str) -> str:
    """An answer without case, width, punctuation and signs; a question keeps its mark, so it is no answer."""
    plain = unicodedata.normalize("NFKC", text).casefold().translate(str.maketrans("", "", "'’"))
    return " ".join("".join(c if c == "?" or unicodedata.category(c)[0] in "LNM" else " " for c in plain).split())


def is_yes(text: str) -> bool:
    """Whether the whole answer is a yes, and nothing but a yes."""
    return YES_ANSWER.fullmatch(_plain(text)) is not None


def is_no(text: str) -> bool:
    """Whether the whole answer is a no, and nothing but a no."""
    return NO_ANSWER.fullmatch(_plain(text)) is not None
