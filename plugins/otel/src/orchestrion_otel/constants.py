"""Names of attributes, as the GenAI conventions of OpenTelemetry and some servers have them.

The conventions are in development and change; these are those of July 2026 (schema 1.42.0-dev of
the registry `gen-ai-dev`). Its first release since then (0.1.0) calls a workflow
`gen_ai.agent.name`, which workflow spans have as well. Names that begin with "orchestrion." are
our own.
"""

from __future__ import annotations

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that asks for contents."""

OPERATION: Final = "gen_ai.operation.name"
WORKFLOW: Final = "gen_ai.workflow.name"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_TOKENS: Final = {
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
}
"""By their names in what was billed."""
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
EVALUATION: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_VALUE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
ERROR_TYPE: Final = "error.type"
SESSION: Final = "session.id"

# Contents, only where they are asked for.
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

REQUEST_SETTINGS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
    "stream": "gen_ai.request.stream",
}
"""By their names in the APIs of OpenAI and Anthropic."""

# What servers read beside the conventions.
KIND: Final = "openinference.span.kind"
"""On workflow and plan spans only: on others it spoils what servers make of the conventions."""
PROJECT: Final = "openinference.project.name"
NODE: Final = "graph.node.id"
NODE_PARENT: Final = "graph.node.parent_id"
COST: Final = "gen_ai.usage.cost"
"""US dollars, for Langfuse and others; there is no convention."""
MLFLOW_COST: Final = "mlflow.llm.cost"
"""The same for MLflow, which would estimate it by the model's name."""
