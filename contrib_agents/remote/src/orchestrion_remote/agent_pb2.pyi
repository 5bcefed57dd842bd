from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ActRequest(_message.Message):
    __slots__ = ("agent", "name", "option", "problem", "turns", "given", "observation", "team", "key")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    TEAM_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    agent: str
    name: str
    option: str
    problem: Problem
    turns: _containers.RepeatedCompositeFieldContainer[Turn]
    given: _containers.RepeatedCompositeFieldContainer[Turn]
    observation: Observation
    team: _containers.RepeatedCompositeFieldContainer[Member]
    key: bytes
    def __init__(self, agent: _Optional[str] = ..., name: _Optional[str] = ..., option: _Optional[str] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ..., turns: _Optional[_Iterable[_Union[Turn, _Mapping]]] = ..., given: _Optional[_Iterable[_Union[Turn, _Mapping]]] = ..., observation: _Optional[_Union[Observation, _Mapping]] = ..., team: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., key: _Optional[bytes] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("id", "text", "data_json", "category")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    data_json: str
    category: str
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ..., data_json: _Optional[str] = ..., category: _Optional[str] = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("index", "agent", "option", "content", "data_json")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    index: int
    agent: str
    option: str
    content: str
    data_json: str
    def __init__(self, index: _Optional[int] = ..., agent: _Optional[str] = ..., option: _Optional[str] = ..., content: _Optional[str] = ..., data_json: _Optional[str] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("text", "data_json", "features", "blocked", "progress", "hints_json")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    HINTS_JSON_FIELD_NUMBER: _ClassVar[int]
    text: str
    data_json: str
    features: _containers.RepeatedScalarFieldContainer[float]
    blocked: _containers.RepeatedScalarFieldContainer[str]
    progress: float
    hints_json: str
    def __init__(self, text: _Optional[str] = ..., data_json: _Optional[str] = ..., features: _Optional[_Iterable[float]] = ..., blocked: _Optional[_Iterable[str]] = ..., progress: _Optional[float] = ..., hints_json: _Optional[str] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "options", "role", "ends")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    options: _containers.RepeatedScalarFieldContainer[str]
    role: str
    ends: bool
    def __init__(self, name: _Optional[str] = ..., options: _Optional[_Iterable[str]] = ..., role: _Optional[str] = ..., ends: bool = ...) -> None: ...

class ActResponse(_message.Message):
    __slots__ = ("content", "data_json", "usage", "final", "metadata_json", "error")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    content: str
    data_json: str
    usage: Usage
    final: bool
    metadata_json: str
    error: str
    def __init__(self, content: _Optional[str] = ..., data_json: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., final: bool = ..., metadata_json: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("calls", "input_tokens", "output_tokens", "usd", "cost")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    USD_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float
    cost: float
    def __init__(self, calls: _Optional[int] = ..., input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., usd: _Optional[float] = ..., cost: _Optional[float] = ...) -> None: ...

class ActEvent(_message.Message):
    __slots__ = ("piece", "response")
    PIECE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    piece: Piece
    response: ActResponse
    def __init__(self, piece: _Optional[_Union[Piece, _Mapping]] = ..., response: _Optional[_Union[ActResponse, _Mapping]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("agent", "text")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    text: str
    def __init__(self, agent: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...
