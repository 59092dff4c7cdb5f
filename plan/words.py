"""The traveller's words: every sentence as a row in Chinese and English, and the nouns of a trip put into words.

A new reason for an end is a row in ENDINGS. Knows nothing of which row applies or how rows are laid out: see `view`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, NamedTuple

from plan.conditions import CONDITIONS, Condition
from plan.goal import date_in_words
from plan.hotels import money_text
from plan.model import Offer, Receipt, RoomRule, RoomType, Trip
from plan.text import as_json


class Words(NamedTuple):
    """One sentence in both languages, with the same fields to fill in."""

    zh: str
    en: str

    def say(self, language: str, **values: Any) -> str:
        """The sentence in a language."""
        return (self.zh if language == "zh" else self.en).format(**values)


class Ending(NamedTuple):
    """What the person reads at an end: what happened, what they can do, and a command's arguments for it."""

    happened: Words
    next: Words
    arguments: Words


# fmt: off
SHOW = Words("--show {run_id}", "--show {run_id}")
GO_ON = Words("--resume {run_id}", "--resume {run_id}")
APPROVE = Words("--resume {run_id} --yes", "--resume {run_id} --yes")
AGAIN = Words('--resume {run_id} "再查一次"', '--resume {run_id} "try again"')
OTHER_DAY = Words('--resume {run_id} "改成 {other_day}"', '--resume {run_id} "change it to {other_day}"')
OTHER_CITY = Words('--resume {run_id} "改去{other_city}"', '--resume {run_id} "go to {other_city} instead"')
THIS_PLACE = Words('--resume {run_id} "我指的是{candidate}"', '--resume {run_id} "I mean {candidate}"')
WHOLE_TRIP = Words(
    '--resume {run_id} "西安 {example_day} 住两晚，下雨订 suite，否则订 standard"',
    '--resume {run_id} "Xi\'an, two nights from {example_day}: a suite if it rains, otherwise a standard room"')
NEW_RUN = Words('"{goal}"', '"{goal}"')

HOW_IT_CAME = Words("整个经过可以这样看：", "To see how it came about:")
LATER = Words("进展已保存。过一会儿再试：", "What is known is saved. Try again in a while:")

ENDINGS: Mapping[str, Ending] = {
    "booked": Ending(
        Words("房间订好了，确认号 {reference}。", "The room is booked, reference {reference}."),
        HOW_IT_CAME, SHOW),
    "answered": Ending(Words("查到的结果：", "Here is what was found."), HOW_IT_CAME, SHOW),
    "approval": Ending(
        Words("这间房等你点头。", "This room waits for your yes."),
        Words("同意就运行：", "To approve exactly this:"), APPROVE),
    "price_changed": Ending(
        Words("现在的价格和你同意过的不一样了。", "The price isn't the one that you approved any more."),
        Words("同意现在的价格就运行：", "To approve the present price:"), APPROVE),
    "declined": Ending(
        Words("按你的意思停在这里。", "It ends here, as you wished."),
        Words("想换日期、房型或城市，接着说就行，例如：", "For another day, room or city just go on, for example:"),
        OTHER_DAY),
    "unclear_goal": Ending(
        Words("这句话里还缺一些：要有城市、入住日期、住几晚、要什么房型（可以看天气定）。",
              "More is needed: a city, a check-in date, the number of nights and a room, by the weather if wanted."),
        Words("例如：", "For example:"), WHOLE_TRIP),
    "out_of_forecast_window": Ending(
        Words("{day}不在天气预报的范围内；日期没有替你改，天气也不猜。",
              "{day} is outside the weather forecast; the date was left alone, and the weather isn't guessed."),
        Words("现在就能查的日子，例如 {other_day}：", "A day that is open now, such as {other_day}:"), OTHER_DAY),
    "weather_unknown": Ending(
        Words("{day}在预报范围内，但当天没有数据；天气不猜。",
              "{day} is inside the forecast, but without a value; the weather isn't guessed."),
        Words("可以过些时候再查，也可以换一天或改房型的要求：", "Ask again later, or name another day or rule:"),
        AGAIN),
    "no_hotels": Ending(
        Words("目录里没有{city}的酒店。", "The catalogue has no hotel in {city}."),
        Words("有酒店的城市：{cities}。例如：", "It has hotels in {cities}. For example:"), OTHER_CITY),
    "place_not_found": Ending(
        Words("找不到名叫“{city}”的地方。", "No place named “{city}” was found."),
        Words("请换一种写法，加上省份或国家，或换个城市，例如：",
              "Spell it otherwise, add the region or country, or go elsewhere, for example:"), OTHER_CITY),
    "place_ambiguous": Ending(
        Words("“{city}”指的是哪里还不清楚：{candidates}。", "It isn't clear which place “{city}” is: {candidates}."),
        Words("请说明是哪一个，例如：", "Say which one, for example:"), THIS_PLACE),
    "room_unavailable": Ending(
        Words("这段时间（{stay}）在{city}没有空的{room}。", "In {city} there is no {room} left ({stay})."),
        Words("可以换一天、换房型或换城市，例如：", "Choose another day, room or city, for example:"), OTHER_DAY),
    "timeout": Ending(
        Words("{task}时一直没有等到回答，重试也一样。", "No answer came while {task}, retries included."),
        LATER, AGAIN),
    "rate_limited": Ending(
        Words("{task}时对方说请求太多，重试也一样。", "The service was overrun while {task}, retries included."),
        LATER, AGAIN),
    "upstream_unavailable": Ending(
        Words("{task}时对方的服务不可用，重试也一样。", "The service was down while {task}, retries included."),
        LATER, AGAIN),
    "bad_response": Ending(
        Words("{task}时收到的回答缺少内容或不可能是真的，重试也一样。",
              "The answers while {task} had missing or impossible parts, retries included."), LATER, AGAIN),
    "server_gone": Ending(
        Words("工具服务器没有启动，或者中途断开了。", "The tool server didn't start, or it broke off."),
        Words("进展已保存。服务器恢复后继续：", "What is done is saved. Once the server is back, go on:"), GO_ON),
    "server_changed": Ending(
        Words("工具服务器改动了这次运行认可过的工具。", "The tool server changed a tool that this run had accepted."),
        Words("经过已保存。请先查清改了什么，信得过再重新开始：",
              "The run is saved. Find out what was changed; if you trust it, start a new run:"), NEW_RUN),
    "tool_missing": Ending(
        Words("工具服务器没有提供需要的工具。", "The tool server lacks a tool that is needed."),
        Words("进展已保存。请检查 mcp_server.py 或 --mcp 的地址，然后继续：",
              "What is done is saved. Check mcp_server.py or the address given with --mcp, then go on:"), GO_ON),
    "not_permitted": Ending(
        Words("工具服务器拒绝了请求。", "The tool server refused us."),
        Words("进展已保存。请检查 TRIP_MCP_TOKEN 和服务器的权限，然后继续：",
              "What is done is saved. Check TRIP_MCP_TOKEN and the server's permissions, then go on:"), GO_ON),
    "model_unavailable": Ending(
        Words("模型没有给出可用的回答。", "The model gave no usable answer."),
        Words("进展已保存。请检查 OPENAI_API_KEY、OPENAI_BASE_URL、OPENAI_MODEL 和网络，然后继续：",
              "What is done is saved. Check OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_MODEL, the network, then go on:"),
        GO_ON),
    "budget_exhausted": Ending(
        Words("预算用完了：已用 {model_calls} 次模型调用、{tokens} 个 token、{seconds:.0f} 秒"
              "（上限：TRIP_MAX_TURNS、TRIP_TOKEN_BUDGET、TRIP_DEADLINE_S）。",
              "A budget is used up, after {model_calls} model calls, {tokens} tokens and {seconds:.0f} seconds"
              " (limits: TRIP_MAX_TURNS, TRIP_TOKEN_BUDGET, TRIP_DEADLINE_S)."),
        Words("进展已保存，每次继续都重新计算预算：", "What is done is saved, and each resume has its budgets anew:"),
        GO_ON),
    "no_progress": Ending(
        Words("模型没有再往前走。", "The model made no further progress."),
        Words("进展已保存。可以直接继续，也可以在后面补一句话：",
              "What is done is saved. Go on, with a word of yours behind it if you like:"), GO_ON),
    "internal_error": Ending(
        Words("程序自己出了错，不是你的问题。", "The program itself failed; it isn't your fault."),
        Words("进展已保存，可以再试；又出错时请附上 --show {run_id} 的内容反馈：",
              "What is done is saved. Try again; if it fails again, report it with the output of --show {run_id}:"),
        GO_ON),
}
"""Reason of an end, or its outcome where it has none → what the person reads."""

MODEL_STUCK = Ending(
    Words("模型几次都没能发出可以执行的调用（{code}），这一步没有做成。",
          "Several times the model failed to make a call that can be carried out ({code})."),
    Words("可以换一种说法，也可以直接再试：", "Say it in other words, or just try again:"), AGAIN)
"""For the codes that are the model's to mend, when it couldn't."""

WINDOW: Mapping[str, Words] = {
    "passed": Words("入住日 {day}已经过去了。", "The check-in day {day} has passed."),
    "until": Words("目前的预报从 {first}到 {last}。", "The forecast now reaches from {first} to {last}."),
    "from": Words("从 {from_day}起就能查到 {day}的天气。", "From {from_day} on, {day} can be asked for."),
    "rain": Words("仅供参考：过去十年里，那天前后有 {share:.0%} 的日子下雨（{samples} 天的记录）。房型不由它决定。",
                  "For information only: in the last ten years it rained on {share:.0%} of the days around that date"
                  " ({samples} on record). That doesn't pick the room."),
}
"""What is known of the forecast's reach: a sentence per thing known."""

PARTS: Mapping[str, Words] = {
    "no_room": Words("目前没有订任何房间。", " No room is taken so far."),
    "trip": Words("  行程：{city}，{stay}", "  Trip: {city}, {stay}"),
    "place": Words("  地点：{place}", "  Place: {place}"),
    "weather": Words("  天气：{day}，{weather}", "  Weather: {day}, {weather}"),
    "hotel": Words("  酒店：{hotel}", "  Hotel: {hotel}"),
    "room": Words("  房型：{room}（{type}）；{why}", "  Room: {room}; {why}"),
    "stay": Words("  日期：{stay}", "  Dates: {stay}"),
    "total": Words("  总价：{total}", "  Total: {total}"),
    "hotels": Words("  查到的酒店（每晚价格）：{hotels}", "  Hotels found, prices per night:{hotels}"),
    "question": Words("要订这间房吗？请回答 是 / 否，或说要改什么：",
                      "Book this room? Answer yes / no, or what to change:"),
    "answer": Words("你的回答（直接回车就离开）：", "Your answer (Enter alone leaves):"),
    "said": Words("详情：“{text}”", "Details: “{text}”"),
    "prose": Words("模型的话（未经核对）：“{text}”", "The model's words, unchecked: “{text}”"),
    "credit": Words("Weather data by Open-Meteo.com（CC BY 4.0）；地名：GeoNames",
                    "Weather data by Open-Meteo.com (CC BY 4.0); place names by GeoNames"),
}
"""What a reply and the question before a booking are put together from."""

STATES: Mapping[str, Words] = {
    "model": Words("等待模型回答", "waiting for the model"),
    "tools": Words("等待 {tools}", "waiting for {tools}"),
    "person": Words("等待你的回答", "waiting for your answer"),
    "over": Words("已结束", "over"),
    "pending": Words("待做", "to do"),
    "running": Words("进行中", "under way"),
    "done": Words("完成", "done"),
    "failed": Words("未成", "failed"),
    "dropped": Words("放下", "left behind"),
}
"""What is going on: the sign of life, and the state of a step."""

LOG: Mapping[str, Words] = {
    "run_started": Words("· 目标：{text}", "· Goal: {text}"),
    "run_resumed": Words("· 继续运行 {run_id}", "· Run {run_id} goes on"),
    "person_spoke": Words("· 你说：{text}", "· You said: {text}"),
    "model_retried": Words("↻ 模型没有答成，{pause:g} 秒后再试：{code}：{message}",
                           "↻ no answer from the model, again in {pause:g} s: {code}: {message}"),
    "turn": Words("· 模型说：{text}", "· The model says: {text}"),
    "left_out": Words("· 模型的话略去：提到了账上没有的预订",
                      "· The model's words left out: they speak of a stay not on record"),
    "reminded": Words("· 提醒模型：{text}", "· Reminder to the model: {text}"),
    "call_started": Words("→ {tool} {arguments}", "→ {tool} {arguments}"),
    "call_retried": Words("↻ {tool} 没有成，{pause:g} 秒后再试：{code}：{message}",
                          "↻ {tool} failed, again in {pause:g} s: {code}: {message}"),
    "call_succeeded": Words("✓ {tool} {result}", "✓ {tool} {result}"),
    "recorded": Words("✓ {tool}（沿用记录）{result}", "✓ {tool} (from the record) {result}"),
    "cut": Words("  去掉的字段：{dropped}", "  fields cut: {dropped}"),
    "call_failed": Words("✗ {tool}：{code} → {branch}：{message}", "✗ {tool}: {code} → {branch}: {message}"),
    "refused": Words("  参数：{arguments}", "  arguments: {arguments}"),
    "plan": Words("✓ 计划 {version}：{city}，{terms}", "✓ Plan {version}: {city}, {terms}"),
    "why": Words("↻ 改计划的原因：{text}", "↻ Replanned because: {text}"),
    "approval_asked": Words("· 等待同意：{offer}", "· Waiting for a yes: {offer}"),
    "approval_given": Words("✓ 已同意：{offer}", "✓ Approved: {offer}"),
    "run_ended": Words("· 结束：{outcome} {code}", "· End: {outcome} {code}"),
    "head": Words("运行 {run_id}，{at}，模型：{provider} {model}", "Run {run_id}, {at}, model: {provider} {model}"),
    "reply": Words("— 第 {n} 轮：{u.prompt_tokens} + {u.completion_tokens} token，{seconds:.2f} 秒",
                   "— Turn {n}: {u.prompt_tokens} + {u.completion_tokens} tokens, {seconds:.2f} s"),
    "version": Words("计划 {version}：{steps}", "Plan {version}: {steps}"),
    "path": Words("状态：{path}", "Phases: {path}"),
    "used": Words("用量：模型 {t.model_calls} 次，工具 {t.tool_calls} 次，重试 {t.retries} 次，改计划 {t.replans} 次",
                  "Used: model calls {t.model_calls}, tool calls {t.tool_calls}, retries {t.retries},"
                  " replans {t.replans}"),
    "spent": Words("token：{u.prompt_tokens} + {u.completion_tokens}；用时 {seconds:.1f} 秒",
                   "Tokens: {u.prompt_tokens} + {u.completion_tokens}; {seconds:.1f} s"),
}
"""One line per thing that happened, and the lines around them when a run is told afterwards."""

PAGE: Mapping[str, Words] = {
    "booked": Words("已订好", "Booked"),
    "answered": Words("已答复", "Answered"),
    "needs_user": Words("等你决定", "Waiting for you"),
    "declined": Words("按你的意思没有订", "Declined"),
    "stopped": Words("停下了", "Stopped"),
    "unfinished": Words("未结束", "Unfinished"),
    "run": Words("运行", "Run"),
    "model": Words("模型", "Model"),
    "hotel": Words("酒店", "Hotel"),
    "room": Words("房型", "Room"),
    "stay": Words("日期", "Dates"),
    "total": Words("总价", "Total"),
    "reference": Words("确认号", "Reference"),
    "model_calls": Words("模型调用", "model calls"),
    "tool_calls": Words("工具调用", "tool calls"),
    "retries": Words("重试", "retries"),
    "replans": Words("改计划", "replans"),
    "tokens": Words("token", "tokens"),
    "seconds": Words("秒", "seconds"),
    "reply": Words("答复", "Reply"),
    "way": Words("走过的状态", "The way it took"),
    "way_hint": Words("数字是先后次序；虚线是可以走而没有走的路。",
                      "Numbers give the order; dashed lines are moves that were open and not taken."),
    "back": Words("继续运行", "resumed"),
    "plans": Words("计划", "Plans"),
    "plan": Words("计划 {version}", "Plan {version}"),
    "no_plan": Words("没有计划被采纳。", "No plan was accepted."),
    "in_force": Words("最后一版", "latest"),
    "replaced": Words("已被替换", "replaced"),
    "because": Words("改计划的原因", "Why it was replaced"),
    "story": Words("经过", "What happened"),
    "turn": Words("第 {number} 轮", "Turn {number}"),
    "waited": Words("{seconds:.2f} 秒", "{seconds:.2f} s"),
    "tools": Words("每次请求都带着的工具", "The tools, which go with every request"),
    "spent": Words("{tokens} token", "{tokens} tokens"),
    "says": Words("模型说（未经核对）", "The model says, unchecked"),
    "left_out": Words("下面的话提到了账上没有的预订，没有给用户看",
                      "Kept from the person: these words speak of a booking that isn't on record"),
    "done": Words("成功", "done"),
    "recorded": Words("沿用记录", "from the record"),
    "refused": Words("被拒绝，没有执行", "refused, never ran"),
    "failed": Words("执行失败", "failed"),
    "open": Words("没有回答", "no answer"),
    "to_plan": Words("计划 {version} 生效", "Plan {version} in force"),
    "arguments": Words("参数", "Arguments"),
    "came_back": Words("返回", "Came back"),
    "details": Words("详情", "Details"),
    "cut": Words("模型没有看到的字段", "Cut before the model saw it"),
    "request": Words("模型看到的请求：{count} 条消息，{characters:,} 字符",
                     "The request as the model saw it: {count} messages, {characters:,} characters"),
    "known": Words("前 {known} 条和上一次请求相同", "The first {known} are those of the request before"),
    "run_started": Words("{text}", "{text}"),
    "run_resumed": Words("继续运行", "The run goes on"),
    "person_spoke": Words("{text}", "{text}"),
    "model_retried": Words("模型没有答成，{pause:g} 秒后再试：{code}，{message}",
                           "No answer from the model, again in {pause:g} s: {code}, {message}"),
    "call_retried": Words("{pause:g} 秒后由代码再试：{code}，{message}",
                          "Tried again by code after {pause:g} s: {code}, {message}"),
    "reminded": Words("{text}", "{text}"),
    "approval_asked": Words("问你：{offer}", "You are asked: {offer}"),
    "approval_given": Words("你同意了：{offer}（{text}）", "You agreed: {offer} ({text})"),
    "run_ended": Words("{outcome} {code}", "{outcome} {code}"),
    "you": Words("你", "You"),
    "harness": Words("程序", "The code"),
    "end": Words("结束", "The end"),
    "credit": Words("Weather data by Open-Meteo.com（CC BY 4.0）；地名：GeoNames",
                    "Weather data by Open-Meteo.com (CC BY 4.0); place names by GeoNames"),
}
"""Labels and sentences of the page that shows a run."""

ASKING = Words("查询", "asking the tool server")
TASKS: Mapping[str, Words] = {
    "search_location": Words("查找地点", "looking for the place"),
    "get_weather": Words("查询天气", "asking for the weather"),
    "search_hotels": Words("查找酒店", "looking for hotels"),
    "book_hotel": Words("订房", "asking for the room"),
}
WEATHER: Mapping[Condition, tuple[Words, Words]] = {
    condition: (Words(*words.reported), Words(*words.asked)) for condition, words in CONDITIONS.items()
}
"""A condition as it is reported, and as a room rule asks for it."""
ROOMS: Mapping[RoomType, Words] = {
    RoomType.STANDARD: Words("标准间", "standard room"),
    RoomType.DELUXE: Words("豪华间", "deluxe room"),
    RoomType.SUITE: Words("套房", "suite"),
}
# fmt: on


def listed(parts: list[str], language: str) -> str:
    """Parts of a sentence, one after the other."""
    return ("，" if language == "zh" else ", ").join(parts)


def day_words(day: date, language: str, today: date | None) -> str:
    """A date for people; in ISO form where it isn't known what day they have."""
    return date_in_words(day, "zh" if language == "zh" else "en", today) if today else day.isoformat()


def stay_words(stay: Trip | Offer | Receipt, language: str, today: date | None = None) -> str:
    """First and last day of a stay, and its nights."""
    last = stay.check_in + timedelta(days=stay.nights)
    first_day, last_day = (day_words(day, language, today) for day in (stay.check_in, last))
    if language == "zh":
        return f"入住 {first_day}，退房 {last_day}，共 {stay.nights} 晚"
    return f"check-in {first_day}, check-out {last_day}, {stay.nights} night{'s' if stay.nights > 1 else ''}"


def rule_words(rule: RoomRule, language: str) -> str:
    """Which room was asked for: a suite if it rains, otherwise a standard room."""
    zh = language == "zh"
    rooms = [*(case.room_type for case in rule.when), rule.default]
    named = [f"订{ROOMS[room].zh}" if zh else f"a {ROOMS[room].en}" for room in rooms]
    whens = [WEATHER[case.condition][1].say(language) for case in rule.when]
    if not whens:
        return f"不论天气都{named[0]}" if zh else f"{named[0]} in any weather"
    cases = [when + room if zh else f"{room} {when}" for when, room in zip(whens, named, strict=False)]
    return listed([*cases, ("否则" if zh else "otherwise ") + named[-1]], language)


def weather_words(data: Mapping[str, Any], language: str) -> str:
    """Condition and high of a recorded day."""
    said = WEATHER[Condition(data["condition"])][0].say(language)
    high = [] if data.get("high") is None else [f"{'最高' if language == 'zh' else 'high'} {data['high']:g} °C"]
    return listed([said, *high], language)


def why_words(rule: RoomRule, weather: Mapping[str, Any] | None, language: str) -> str:
    """Why it is that room: the rule, and the weather that it asks for."""
    asked = Words("你的要求是{rule}", "you asked for {rule}").say(language, rule=rule_words(rule, language))
    if weather is None or not rule.needs_weather:
        return asked
    said = WEATHER[Condition(weather["condition"])][0].say(language)
    return listed([Words("当天{said}", "that day: {said}").say(language, said=said), asked], language)


def total_words(room: Offer | Receipt) -> str:
    """The price of the whole stay, with its currency."""
    total = money_text(room.total_minor, room.currency) if isinstance(room, Offer) else room.total
    return f"{total} {room.currency}"


def offer_words(room: Offer | Receipt, language: str) -> str:
    """A room and its stay on one line."""
    room_type = ROOMS[room.room_type].say(language)
    return listed([room.hotel_name, room_type, stay_words(room, language), total_words(room)], language)


def place_words(data: Mapping[str, Any], language: str) -> str:
    """A place with its region and country, each once."""
    return listed(list(dict.fromkeys(str(data[k]) for k in ("name", "admin1", "country") if data.get(k))), language)


def hotel_words(hotel: Mapping[str, Any], language: str) -> str:
    """A hotel with what its free rooms cost a night."""
    free = [room for room in hotel["rooms"] if room["left"]]
    rooms = [f"{ROOMS[r['room_type']].say(language)} {r['price_per_night']} {r['currency']}" for r in free]
    sold_out = "已满" if language == "zh" else "sold out"
    return f"{hotel['name']}{'：' if language == 'zh' else ': '}{listed(rooms, language) or sold_out}"


def result_words(tool: str, data: Mapping[str, Any], language: str) -> str:
    """A result in a few words."""
    if tool == "search_location":
        return f"{place_words(data, language)} ({data['latitude']:.2f}, {data['longitude']:.2f})"
    if tool == "get_weather":
        return listed([data["date"], weather_words(data, language)], language)
    if tool == "search_hotels":
        return listed([f"{hotel['hotel_id']} {hotel['name']}" for hotel in data["hotels"]], language)
    if tool == "book_hotel":
        return listed([data["reference"], offer_words(Receipt.model_validate(data), language)], language)
    return as_json(data)
