#include <strata/runtime/str.h>

#include "describe/command_reference.h"
#include "describe/complete.h"
#include "describe/man_page.h"
#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {

int run_completions(const Args& args) {
  print(args.out, completion_script(args.action));
  return kExitOk;
}

int run_complete(const Args& args) {
  for (const Completion& found : complete(command_help(), args.items))
    print(args.out, str(found.word, found.text.empty() ? "" : "\t", found.text, "\n"));
  return kExitOk;
}

int run_man(const Args& args) {
  const CommandHelp strata = command_help();
  if (args.markdown) {
    print(args.out, command_reference(strata));
    return kExitOk;
  }
  if (!args.action.empty() && strata.find(args.action) == nullptr)
    return print_error(args, "man",
                       Status::error(Code::invalid, str("there is no verb '", args.action, "'")));
  print(args.out, man_page(strata, args.action, STRATA_VERSION));
  return kExitOk;
}

}  // namespace strata::cli
