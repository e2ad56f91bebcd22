"""The grammar of CREATE TABLE: what Flink's and Spark's statements of Paimon's tables have in common, and each alone.

Types are only delimited here; ``app.core.types.parser`` reads them. Comments are blanked before.
"""

from __future__ import annotations

from functools import lru_cache

from lark import Lark

from app.core.types.dialects import DOUBLE_QUOTED, TEXT, Dialect

# LALR(1) with a contextual lexer: a keyword is one only where it may stand, so most remain good names. For that,
# brackets after which different keywords may stand are separate rules. Of NOT after a key the longer reading is taken.
_RULES = r"""
start: "CREATE"i modifier* "TABLE"i if_not_exists? path elements? clause*
modifier: "TEMPORARY"i -> temporary | "EXTERNAL"i -> external | "OR"i "REPLACE"i -> or_replace
if_not_exists: "IF"i "NOT"i "EXISTS"i
path: name ("." name)*
elements: "(" (element ("," element)* ","?)? ")"
?element: column | computed | key | watermark
column: name type part*
computed: name "AS"i expression ("COMMENT"i text)?
part: "NOT"i "NULL"i                                                        -> not_null
    | "NULL"i                                                               -> nullable
    | "COMMENT"i text                                                       -> comment
    | "DEFAULT"i value                                                 -> default
    | "PRIMARY"i "KEY"i enforced?                                           -> key_here
    | "METADATA"i ("FROM"i text)? "VIRTUAL"i?                               -> metadata
    | "GENERATED"i "ALWAYS"i "AS"i value_group                                    -> generated
key: ("CONSTRAINT"i name)? "PRIMARY"i "KEY"i "(" name ("," name)* ")" enforced?
enforced: "NOT"i "ENFORCED"i | "ENFORCED"i
watermark: "WATERMARK"i "FOR"i path "AS"i expression
clause: "COMMENT"i text                                                     -> table_comment
    | "PARTITIONED"i "BY"i "(" partition ("," partition)* ")"               -> partitioned
    | "USING"i name                                                         -> using
    | STORED_BY text                                                        -> stored_by
    | ("WITH"i | "TBLPROPERTIES"i | "OPTIONS"i) "(" (option ("," option)* ","?)? ")" -> options
    | ("DISTRIBUTED"i | "CLUSTERED"i) ("BY"i name? "(" _inside* ")")? ("INTO"i NUMBER "BUCKETS"i)? -> distributed
    | "LOCATION"i text                                                      -> location
partition: name type?
option: (path | text) "="? (text | number | name)
text: TEXT | DOUBLE_QUOTED
number: SIGN? NUMBER ("." NUMBER)?
type: type_word+
type_word: WORD (type_group | type_brackets)*
type_group: "(" _inside* ")"
type_brackets: "<" _inside* ">"
brackets: "<" _inside* ">"
group: "(" _inside* ")"
_inside: WORD | BACKQUOTED | DOUBLE_QUOTED | TEXT | NUMBER | SIGN | OTHER | "," | ":" | "." | "=" | brackets | group
expression: (_symbol | expression_group)+
_symbol: WORD | BACKQUOTED | DOUBLE_QUOTED | TEXT | NUMBER | SIGN | OTHER | "." | "=" | "<" | ">" | ":"
expression_group: "(" _within* ")"
inner_group: "(" _within* ")"
_within: WORD | BACKQUOTED | DOUBLE_QUOTED | TEXT | NUMBER | SIGN | OTHER | "." | "=" | "<" | ">" | ":" | ","
    | inner_group
value: text | number | WORD (value_group | text)?
value_group: "(" _within* ")"
name: WORD | BACKQUOTED
STORED_BY.2: /STORED\s+BY\b/i
SIGN: /[-+]/
NUMBER: /[0-9]+/
OTHER: /[*\/%|&^~!?\[\]]/
BACKQUOTED: /`(?:[^`]|``)*`/
WORD: /[A-Z_\u0080-\U0010ffff][A-Z_0-9$\u0080-\U0010ffff]*/i
%ignore /\s+/
"""


@lru_cache(maxsize=len(Dialect))
def create_table_parser(dialect: Dialect) -> Lark:
    """Read one statement of the dialect into its tree."""
    texts = f"TEXT: /{TEXT[dialect]}/s\nDOUBLE_QUOTED: /{DOUBLE_QUOTED[dialect]}/s\n"
    return Lark(_RULES + texts, parser="lalr", maybe_placeholders=False, propagate_positions=True)
