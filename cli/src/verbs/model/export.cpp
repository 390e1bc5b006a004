#include <strata/infer/export_model.h>
#include <strata/runtime/str.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {

int run_export(const Args& args) {
  ExportRequest request{args};
  request.out_dir = args.out_dir;
  request.format = args.format;
  request.dtype = args.dtype;
  request.max_shard_size = args.max_shard_size;
  request.ema = args.ema;
  request.states = args.states;
  request.text_only = args.text_only;
  request.check = args.check;
  request.checkpoint = args.checkpoint;
  const auto text = export_model(
      request, [&](std::string_view said) { print(args.err, str("strata export: ", said, "\n")); });
  if (!text.has_value()) return print_error(args, "export", text.status());
  print(args.out, *text);
  return kExitOk;
}

}  // namespace strata::cli
