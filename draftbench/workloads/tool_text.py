"""Conversations with tools for a target whose chat template has none, in BFCL's own prompting form.

Tool documents go into the system message, calls into the assistant's text (`[name(argument=value)]`), results
into a user message (BFCL v4: default_prompts.py, model_handler/utils.py).
Documents are written as compact JSON: BFCL's indentation of four would make prompts a third longer.
"""

import json
from typing import Any

from draftbench.workloads.bfcl_calls import FunctionCall
from draftbench.workloads.items import Message

SYSTEM_PROMPT = (
    "You are an expert in composing functions."
    "You are given a question and a set of possible functions. Based on the question, you will need to make one or "
    "more function/tool calls to achieve the purpose. If none of the functions can be used, point it out. If the "
    "given question lacks the parameters required by the function, also point it out.\n\n"
    "You should only return the function calls in your response.\n\n"
    "If you decide to invoke any of the function(s), you MUST put it in the format of [func_name1(params_name1="
    "params_value1, params_name2=params_value2...), func_name2(params)].  You SHOULD NOT include any other text in "
    "the response.\n\n"
    "At each turn, you should try your best to complete the tasks requested by the user within the current turn. "
    "Continue to output functions to call until you have fulfilled the user's request to the best of your ability. "
    "Once you have no more functions to call, the system will consider the current turn complete and proceed to the "
    "next turn or task.\n\n"
    "Here is a list of functions in json format that you can invoke.\n{functions}\n"
)
"""BFCL's default system prompt (plaintext, classic, python calls, json documents)."""


def as_text(messages: tuple[Message, ...], tool_documents: tuple[dict[str, Any], ...]) -> tuple[Message, ...]:
    """Return the conversation without tools; consecutive user messages become one, as in BFCL.

    A conversation without tools is returned as it is.
    """
    if not tool_documents:
        return messages
    system = SYSTEM_PROMPT.format(functions=json.dumps(tool_documents, ensure_ascii=False))
    if messages[0]["role"] == "system":
        system += "\n\n" + messages[0]["content"]
        messages = messages[1:]
    calls: dict[str, str] = {}
    converted: list[Message] = [{"role": "system", "content": system}]
    for message in messages:
        _append(converted, _text_message(message, calls))
    return tuple(converted)


def _append(conversation: list[Message], message: Message) -> None:
    if message["role"] == conversation[-1]["role"] == "user":
        conversation[-1] = _user(conversation[-1]["content"] + "\n\n" + message["content"])
    else:
        conversation.append(message)


def _text_message(message: Message, calls: dict[str, str]) -> Message:
    """Return one message in text form; `calls` remembers the text of each call id for its result."""
    if message["role"] == "tool":
        name = calls.get(message["tool_call_id"], message.get("name", ""))
        return _user(repr([{"role": "tool", "name": name, "content": message["content"]}]))
    if not message.get("tool_calls"):
        return message
    made = {call["id"]: _call_text(call["function"]) for call in message["tool_calls"]}
    calls.update(made)
    text = f"[{', '.join(made.values())}]"
    return {"role": "assistant", "content": f"{message['content']}\n{text}" if message.get("content") else text}


def _call_text(function: dict[str, Any]) -> str:
    arguments = function["arguments"]
    return str(FunctionCall(function["name"], json.loads(arguments) if isinstance(arguments, str) else arguments))


def _user(content: str) -> Message:
    return {"role": "user", "content": content}
