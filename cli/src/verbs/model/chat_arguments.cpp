#include "verbs/model/chat_arguments.h"

#include <strata/runtime/str.h>

#include "print.h"

namespace strata::cli {

Status set_chat_arguments(const Args& args, GenerationSource& source) {
  if (!args.chat_arguments.empty())
    STRATA_TRY(source.set_chat_arguments(args.chat_arguments).annotate("--chat-template-kwargs"));
  if (!args.thinks) return {};
  if (args.chat_arguments.find("\"enable_thinking\"") != std::string::npos)
    return Status::error(Code::invalid,
                         "--enable-thinking and --chat-template-kwargs both set enable_thinking; give one");
  if (const auto& chat = source.chat();
      chat.has_value() && chat->jinja().find("enable_thinking") == std::string::npos)
    print(args.err, str("note: --enable-thinking has no effect, since the chat template of ",
                        args.items.front(), " does not ask for it\n"));
  return source.set_chat_arguments(str("{\"enable_thinking\": ", *args.thinks ? "true" : "false", "}"));
}

}  // namespace strata::cli
