#include "cuda/attention/attention_plans.h"

#include <utility>

#include <strata/runtime/str.h>

#include "cuda/field_reader.h"

namespace strata::kernels::detail {

std::string to_text(const std::vector<AttentionPlan>& choices) {
  std::string text =
      choices.empty()
          ? ""
          : "# attention backward causal dtype batch heads kv_heads seq d [of row_heads row_kv_heads] plan\n";
  for (const auto& [a, plan] : choices) {
    const std::string of_row =
        a.row_heads > 0 ? str("of ", a.row_heads, " ", a.row_kv_heads, " ") : std::string();
    text += str("attention ", int{a.backward}, " ", int{a.causal}, " ", to_string(a.dtype), " ", a.batch, " ",
                a.heads, " ", a.kv_heads, " ", a.seq, " ", a.d, " ", of_row, plan, "\n");
  }
  return text;
}

Result<std::vector<AttentionPlan>> parse_attention_plans(std::string_view text) {
  std::vector<AttentionPlan> choices;
  STRATA_TRY(for_each_line(text, "an attention and its plan", [&](std::string_view line) {
    if (!is_attention(line)) return true;
    FieldReader fields(line);
    AttentionPlan choice;
    CudnnAttention& a = choice.attention;
    fields.word();
    a.backward = fields.flag();
    a.causal = fields.flag();
    a.dtype = fields.dtype();
    for (std::int64_t* size : {&a.batch, &a.heads, &a.kv_heads, &a.seq, &a.d})
      *size = fields.number<std::int64_t>();
    choice.plan = fields.word();
    if (choice.plan == "of") {  // heads that are a part of a row's
      a.row_heads = fields.number<std::int64_t>();
      a.row_kv_heads = fields.number<std::int64_t>();
      choice.plan = fields.word();
    }
    choices.push_back(std::move(choice));
    return fields.is_done();
  }));
  return choices;
}

}  // namespace strata::kernels::detail
