"""Languages of articles, by tags that people and detectors spell in many ways.

`en`, `EN`, `en-US`, `en_GB`, `eng`, `eng_Latn` and `__label__en` are all English. Names such as `English` are not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_FASTTEXT = "__label__"
"""The prefix of each language in fastText's format of labels."""
_TAG = re.compile("[A-Za-z][A-Za-z0-9_-]{0,34}", re.ASCII)
"""A text that is short and plain enough to be a tag. BCP 47 (RFC 5646, 4.4.1) asks programs for room for 35 characters."""
_CLDR_ALIASES = """
aar:aa abk:ab adp:dz afr:af aka:ak alb:sq als:sq amh:am ara:ar arb:ar arg:an arm:hy asm:as ava:av ave:ae aym:ay ayr:ay
aze:az azj:az bak:ba bam:bm baq:eu bel:be ben:bn bh:bho bih:bho bis:bi bod:bo bos:bs bre:br bul:bg bur:my cat:ca
ces:cs cha:ch che:ce chi:zh chu:cu chv:cv cls:sa cmn:zh cnr:sr-me cor:kw cos:co cre:cr cwd:cr cym:cy cze:cs dan:da
deu:de div:dv drh:mn drw:fa-af dut:nl dzo:dz ekk:et ell:el eng:en epo:eo esk:ik est:et eus:eu ewe:ee fao:fo fas:fa
fij:fj fin:fi fra:fr fre:fr fry:fy fuc:ff ful:ff gaz:om geo:ka ger:de gla:gd gle:ga glg:gl glv:gv gre:el grn:gn gug:gn
guj:gu hat:ht hau:ha hbs:sr-latn heb:he her:hz hin:hi hmo:ho hrv:hr hun:hu hye:hy ibo:ig ice:is ido:io iii:ii ike:iu
iku:iu ile:ie in:id ina:ia ind:id ipk:ik isl:is ita:it iw:he jav:jv ji:yi jpn:ja jw:jv kal:kl kan:kn kas:ks kat:ka
kau:kr kaz:kk khk:mn khm:km kik:ki kin:rw kir:ky kmr:ku knc:kr kng:kg kom:kv kon:kg kor:ko kpv:kv kua:kj kur:ku lao:lo
lat:la lav:lv lim:li lin:ln lit:lt ltz:lb lub:lu lug:lg lvs:lv mac:mk mah:mh mal:ml mao:mi mar:mr may:ms mkd:mk mlg:mg
mlt:mt mo:ro mol:ro mon:mn mri:mi msa:ms mya:my nau:na nav:nv nbl:nr nde:nd ndo:ng nep:ne nld:nl nno:nn nob:nb nor:no
npi:ne nya:ny oci:oc ojg:oj oji:oj ori:or orm:om ory:or oss:os pan:pa pbu:ps per:fa pes:fa pli:pi plt:mg pol:pl por:pt
prp:gu prs:fa-af pus:ps que:qu quz:qu roh:rm ron:ro rum:ro run:rn rus:ru sag:sg san:sa scc:sr scr:hr sh:sr-latn sin:si
slk:sk slo:sk slv:sl sme:se smo:sm sna:sn snd:sd som:so sot:st spa:es sqi:sq src:sc srd:sc srp:sr ssw:ss sun:su swa:sw
swc:sw-cd swe:sv swh:sw tah:ty tam:ta tat:tt tel:te tgk:tg tgl:fil tha:th tib:bo tir:ti tl:fil tnf:fa-af ton:to tsn:tn
tso:ts tuk:tk tur:tr tw:ak twi:ak uig:ug ukr:uk urd:ur uzb:uz uzn:uz ven:ve vie:vi vol:vo wel:cy wln:wa wol:wo xho:xh
ydd:yi yid:yi yor:yo zha:za zho:zh zsm:ms zul:zu zyb:za
"""
"""Codes of ISO 639-1, 639-2 and 639-3 for which BCP 47 has a shorter or newer one: `eng`, both `ger` and `deu`, and
languages that detectors tell from the macrolanguage that people name, such as Mandarin (`cmn`) from Chinese (`zh`).

All `languageAlias` elements of CLDR 49 (supplementalMetadata.xml; Unicode License v3) that replace a code of two or three
letters by one that begins with two, or by `bho` or `fil`.
"""
_SHORTEST = dict(pair.split(":") for pair in _CLDR_ALIASES.split())


@dataclass(frozen=True, slots=True)
class Languages:
    """The languages of a task's articles: `names`, and if `default`, articles without a language too.

    Names are as `canonical_tag` writes them, and stand for longer tags too: `en` for `en-gb`, `zh-hant` for `zh-hant-tw`.
    """

    names: frozenset[str]
    default: bool = False

    def include(self, language: str | None) -> bool:
        """Whether the task runs on an article with this language."""
        tag = canonical_tag(language or "")
        if not tag:
            return self.default
        return any(tag == name or tag.startswith(f"{name}-") for name in self.names)


@lru_cache(maxsize=1_024)
def canonical_tag(language: str) -> str:
    """The BCP 47 tag of a language in lower case, with its shortest code; empty if the text is blank."""
    tag = language.strip().lower().removeprefix(_FASTTEXT).replace("_", "-")
    code, hyphen, rest = tag.partition("-")
    return f"{_SHORTEST.get(code, code)}{hyphen}{rest}"


def loggable_tag(language: str) -> str | None:
    """The tag as the article has it; None if it may be arbitrary text, which a log must not contain."""
    tag = language.strip()
    return tag if _TAG.fullmatch(tag.removeprefix(_FASTTEXT)) else None
