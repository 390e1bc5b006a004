// The built-in chat templates, for tokenizers that bring none. Each writes what its family's own template
// writes for conversations without tools.
#include "chat/chat_formats.h"

namespace strata::detail {
namespace {

#define STRATA_EACH(BODY) "{% for message in messages %}" BODY "{% endfor %}"
#define STRATA_ASKED(TEXT) "{% if add_generation_prompt %}{{ '" TEXT "' }}{% endif %}"
#define STRATA_UNTOLD(TEXT) "{% if messages[0]['role'] != 'system' %}{{ '" TEXT "' }}{% endif %}"
#define STRATA_ALTERNATES                                                                          \
  "{% if message['role'] != ('user' if loop.index0 % 2 == 0 else 'assistant') %}"                  \
  "{{ raise_exception(\"message \" ~ loop.index ~ \" of \" ~ loop.length ~ \" has the role '\" ~ " \
  "message['role'] ~ \"', but the "                                                                \
  "roles "                                                                                         \
  "must alternate, beginning with 'user'\") }}{% endif %}"

constexpr std::string_view kPlain = STRATA_EACH(
    "{{ {'system': 'System:', 'user': 'User:'}.get(message['role'], 'Assistant:') }}{{ '\\n' }}"
    "{{ message['content'] }}{{ '\\n' }}") STRATA_ASKED("Assistant:\\n");

constexpr std::string_view kChatml =
    STRATA_EACH("{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}")
        STRATA_ASKED("<|im_start|>assistant\\n");

// Reasoning is kept from the last question on; a tool's response also has the role "user" but is no question.
constexpr std::string_view kQwen3 =
    "{% set ns = namespace(question=messages|length - 1, found=false) %}"
    "{% for message in messages[::-1] %}"
    "{% if not ns.found and message['role'] == 'user' and not "
    "(message['content'].startswith('<tool_response>')"
    " and message['content'].endswith('</tool_response>')) %}"
    "{% set ns.found = true %}{% set ns.question = messages|length - 1 - loop.index0 %}"
    "{% endif %}{% endfor %}" STRATA_EACH(
        "{{ '<|im_start|>' + message['role'] + '\\n' }}"
        "{% set content = message['content'] %}{% set reasoning = '' %}"
        "{% if message['role'] == 'assistant' and '</think>' in content %}"
        "{% set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
        "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
        "{% if message['role'] == 'assistant' and loop.index0 > ns.question and (loop.last or reasoning) %}"
        "{{ '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}"
        "{% else %}{{ content }}{% endif %}{{ '<|im_end|>\\n' }}") STRATA_ASKED("<|im_start|>assistant\\n")
    "{% if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}";

#define STRATA_LLAMA3(DATES)                                                                    \
  STRATA_EACH("{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}" DATES \
              "{{ message['content'] | trim }}{{ '<|eot_id|>' }}")                              \
  STRATA_ASKED("<|start_header_id|>assistant<|end_header_id|>\\n\\n")
#define STRATA_DATES "Cutting Knowledge Date: December 2023\\nToday Date: 26 Jul 2024\\n\\n"
constexpr std::string_view kLlama3 = "{{ '<|begin_of_text|>' }}" STRATA_LLAMA3("");
constexpr std::string_view kLlama31 = "{{ '<|begin_of_text|>' }}" STRATA_UNTOLD(
    "<|start_header_id|>system<|end_header_id|>\\n\\n" STRATA_DATES "<|eot_id|>")
    STRATA_LLAMA3("{% if loop.first and message['role'] == 'system' %}{{ '" STRATA_DATES "' }}{% endif %}");

constexpr std::string_view kGlm4 =
    "{{ '[gMASK]<sop>' }}" STRATA_EACH("{{ '<|' + message['role'] + '|>\\n' + message['content'] }}")
        STRATA_ASKED("<|assistant|>");

constexpr std::string_view kMistral = "{{ '<s>' }}" STRATA_EACH(
    STRATA_ALTERNATES
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ message['content'] + '</s>' }}{% endif %}");

constexpr std::string_view kGemma = "{{ '<bos>' }}" STRATA_EACH(
    STRATA_ALTERNATES
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else 'user') + '\\n' }}"
    "{{ message['content'] | trim }}{{ '<end_of_turn>\\n' }}") STRATA_ASKED("<start_of_turn>model\\n");

constexpr std::string_view kPhi3 =
    STRATA_EACH("{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}")
        "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ '<|endoftext|>' }}{% endif %}";

constexpr std::string_view kOlmo2 = "{{ '<|endoftext|>' }}" STRATA_EACH(
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|endoftext|>' }}{% if not loop.last %}{{ '\\n' }}{% endif %}"
    "{% else %}{{ '\\n' }}{% endif %}") STRATA_ASKED("<|assistant|>\\n");

constexpr ChatFormat kFormats[] = {
    {"plain", kPlain, ""},
    {"chatml", kChatml, "<|im_start|> <|im_end|>"},
    {"qwen3", kQwen3, "<|im_start|> <|im_end|>"},
    {"llama3", kLlama3, "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|>"},
    {"llama3.1", kLlama31, "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|>"},
    {"glm4", kGlm4, "[gMASK] <sop> <|system|> <|user|> <|assistant|>"},
    {"mistral", kMistral, "<s> </s>"},
    {"gemma", kGemma, "<bos> <start_of_turn> <end_of_turn>"},
    {"phi3", kPhi3, "<|system|> <|user|> <|assistant|> <|end|> <|endoftext|>"},
    {"olmo2", kOlmo2, "<|endoftext|>"},
};

}  // namespace

std::span<const ChatFormat> chat_formats() noexcept { return kFormats; }

}  // namespace strata::detail
