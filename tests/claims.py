"""Whether a text claims that a room is booked, in Chinese or English. Knows nothing of whether it is true.

Precise rather than careful: what denies, plans or conditions a booking is no claim. The agent's own filter, which
leaves out whatever may be one, shares none of this.
"""

from __future__ import annotations

import re

CLAIM = re.compile(
    r"(?:\b(?:is|are|was|been|have|has|and|i|we|successfully)|['’](?:ve|re|s)) "
    r"(?:(?:now|already|just|successfully) )*(?:booked|reserved)\b(?! (?:out|up|solid|no|none|nothing)\b)"
    r"|^\W*(?:successfully )?booked\b|\bbooked (?:you|your|the|a|it)\b"
    r"|\b(?:booking|reservation)\b[^,]{0,40}\b(?:confirmed|complete|completed|successful|made|done)\b"
    r"|\b(?:confirmed|completed|made) (?:your|the|a) (?:booking|reservation)\b"
    r"|\b(?:booking|reservation|confirmation) (?:reference|number|code)\W*(?:is\b|[:：#])"
    r"|已[^，,：:]{0,10}(?:预[订定]|订(?![单满完])|下单)|预[订定][^，,：:]{0,6}(?:成功|完成|确认)|订[好妥到下]"
    r"|(?:预订|确认|订单)号\W*[:：是为]",
    re.IGNORECASE,
)
NEGATED = re.compile(
    r"\b(?:no|not|nothing|none|never|cannot|unable|without|would|will|can|could|should|may|might|be|to|fail\w*)\b"
    r"|n['’]t\b|[未没无不尚需要才将会可能请待否]|取消|拒绝|准备",
    re.IGNORECASE,
)
CONDITION = re.compile(
    r"\b(?:only )?(?:if|when|once|until|unless|before|after|as soon as)\b|如|若|一旦|前|后", re.IGNORECASE
)


def claim_in(text: str) -> str | None:
    """The sentence that says a room is booked; not one that denies it, plans it or makes it depend on something."""
    for sentence in re.split(r"[.!?。！？；;\n]+\s*", re.sub(r"[*_`]", "", text)):
        for claim in CLAIM.finditer(sentence):
            clause = re.split(r"[,，:：]", sentence[: claim.end() - 1])[-1]
            depends = CONDITION.search(sentence[: claim.end()]) or CONDITION.match(sentence[claim.end() :].lstrip())
            if not NEGATED.search(clause) and not depends:
                return repr(sentence.strip()[:80])
    return None
