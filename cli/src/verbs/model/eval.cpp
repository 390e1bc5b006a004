#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <strata/infer/evaluate_model.h>
#include <strata/plan/tiers.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

EvaluateRequest request_of(const Args& args) {
  EvaluateRequest request{args};
  request.data = args.data;
  request.batches = args.batches;
  request.checkpoint = args.checkpoint;
  // CLI11 puts everything after --data into `data`, key=value included.
  const auto files = std::stable_partition(request.data.begin(), request.data.end(), is_assignment);
  request.items.insert(request.items.end(), request.data.begin(), files);
  request.data.erase(request.data.begin(), files);
  return request;
}

std::string text_of(const ModelEvaluation& m) {
  std::string text = str("model    ", m.model, "\n");
  for (const std::string& note : m.notes) text += str("data     ", note, "\n");
  if (m.loss.pairs.n > 0)
    return text +
           fmt::format("loss     {:.4f}, accuracy {:.4f}\nover     {} pairs, in {}\n", m.loss.nats,
                       m.loss.pairs.accuracy, m.loss.counted.tokens, m.dtype) +
           tiers_text(m.budgets, m.planned, m.measured);
  text += fmt::format("loss     {:.4f} nats per token, perplexity {:.3f}", m.loss.nats, m.loss.perplexity());
  if (const auto bits = m.loss.bits_per_byte()) text += fmt::format(", {:.4f} bits per byte", *bits);
  text += fmt::format("\nover     {} tokens ({} bytes of text) in {} sequences of {}, {}, in {}",
                      m.loss.counted.tokens, m.loss.counted.bytes, m.sequences, m.seq, m.packing, m.dtype);
  if (m.dropped > 0) text += fmt::format("; {} sequences dropped", m.dropped);
  return text + "\n" + tiers_text(m.budgets, m.planned, m.measured);
}

std::string json_of(const ModelEvaluation& m) {
  const auto number = [](double x) { return std::isfinite(x) ? fmt::format("{:.6f}", x) : "null"; };
  std::string files;
  for (const std::string& file : m.files) files += str(files.empty() ? "" : ", ", json_string(file));
  const auto bits = m.loss.bits_per_byte();
  if (m.loss.pairs.n > 0)
    return fmt::format(
        "{{\n  \"model\": {},\n  \"data\": [{}],\n  \"loss\": {},\n  \"loss_bits\": \"{}\",\n  "
        "\"accuracy\": {},\n  \"chosen\": {},\n  \"rejected\": {},\n  \"pairs\": {},\n  "
        "\"micro_batches\": {},\n  \"dtype\": \"{}\"\n}}\n",
        json_string(m.model), files, number(m.loss.nats), double_bits(m.loss.nats),
        number(m.loss.pairs.accuracy), number(m.loss.pairs.chosen), number(m.loss.pairs.rejected),
        m.loss.counted.tokens, m.loss.micro_batches, m.dtype);
  return fmt::format(
      "{{\n  \"model\": {},\n  \"data\": [{}],\n  \"loss\": {},\n  \"loss_bits\": \"{}\",\n  \"perplexity\": "
      "{},\n  \"bits_per_byte\": {},\n  \"tokens\": {},\n  \"bytes\": {},\n  \"sequences\": {},\n  \"seq\": "
      "{},\n  \"dropped_sequences\": {},\n  \"micro_batches\": {},\n  \"packing\": \"{}\",\n  \"dtype\": "
      "\"{}\",\n  "
      "\"peak_bytes\": {},\n  "
      "\"planned_bytes\": {},\n  \"budget_bytes\": {}\n}}\n",
      json_string(m.model), files, number(m.loss.nats), double_bits(m.loss.nats), number(m.loss.perplexity()),
      bits ? number(*bits) : "null", m.loss.counted.tokens, m.loss.counted.bytes, m.sequences, m.seq,
      m.dropped, m.loss.micro_batches, m.packing, m.dtype, tiers_json(m.measured), tiers_json(m.planned),
      tiers_json(m.budgets));
}

}  // namespace

int run_eval(const Args& args) {
  if (args.items.empty() || is_assignment(args.items.front()))
    return print_error(args, "eval",
                       Status::error(Code::invalid,
                                     "missing run or Hugging Face folder; usage: strata eval "
                                     "runs/demo --data unseen.txt"));
  const auto found = evaluate_model(
      request_of(args), [&](std::string_view said) { print(args.err, str("strata eval: ", said, "\n")); });
  if (!found.has_value()) return print_error(args, "eval", found.status());
  print(args.out, args.json ? json_of(*found) : text_of(*found));
  return kExitOk;
}

}  // namespace strata::cli
