#include "text/strict_json.h"

#include <new>
#include <unordered_set>
#include <utility>
#include <vector>

#include <strata/runtime/config/json_problem.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr int kMaxDepth = 64;

struct Refused {  // thrown to leave the parser, which has no other exit; caught below
  std::string why;
};

}  // namespace

Result<nlohmann::json> parse_strict_json(const std::string& text) {
  // The parser treats a NUL as the end and would not read the rest.
  if (const std::size_t nul = text.find('\0'); nul != std::string::npos)
    return Status::error(Code::corrupt, str("a NUL at byte ", nul));
  using Json = nlohmann::json;
  std::vector<std::unordered_set<std::string>> keys;  // of each open object
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) throw Refused{str("nested deeper than ", kMaxDepth)};
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get_ref<const std::string&>()).second)
      throw Refused{
          str("duplicate key '", parsed.get_ref<const std::string&>().substr(0, 80), "' in an object")};
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Refused& refused) {
    return Status::error(Code::corrupt, refused.why);
  } catch (const Json::exception& e) {
    return Status::error(Code::corrupt, str("not JSON: ", json_problem(e.what())));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::out_of_memory,
                         str("not enough memory to read ", text.size(), " bytes of JSON"));
  }
}

Result<std::optional<std::string>> adapter_choice(const nlohmann::json& record) {
  const auto found = record.find("adapter");
  if (found == record.end()) return std::optional<std::string>();
  if (found->is_null()) return std::optional<std::string>(std::string());
  if (!found->is_string() || found->get_ref<const std::string&>().empty())
    return Status::error(Code::invalid, "'adapter' is neither a name nor null");
  return std::optional<std::string>(found->get<std::string>());
}

}  // namespace strata::detail
