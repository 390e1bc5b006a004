#include <strata/runtime/config/strict_json.h>

#include <limits>
#include <new>
#include <unordered_set>
#include <utility>
#include <vector>

#include <strata/runtime/config/json_problem.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxOrderedKeys = 4096;

struct Refused {  // thrown to leave the parser, which has no other exit; caught below
  std::string why;
};

template <class Json>
Result<Json> parse(const std::string& text, std::size_t max_keys) {
  // The parser treats a NUL as the end and would not read the rest.
  if (const std::size_t nul = text.find('\0'); nul != std::string::npos)
    return Status::error(Code::corrupt, str("a NUL at byte ", nul));
  std::vector<std::unordered_set<std::string>> keys;  // the keys of each open object
  using Event = typename Json::parse_event_t;
  const auto check = [&](int depth, Event event, Json& parsed) {
    if (depth > kMaxDepth) throw Refused{str("nested deeper than ", kMaxDepth)};
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event != Event::key) return true;
    const auto& key = parsed.template get_ref<const std::string&>();
    if (!keys.back().insert(key).second)
      throw Refused{str("duplicate key '", key.substr(0, 80), "' in an object")};
    if (keys.back().size() > max_keys) throw Refused{str("an object with more than ", max_keys, " keys")};
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Refused& refused) {
    return Status::error(Code::corrupt, refused.why);
  } catch (const typename Json::exception& e) {
    return Status::error(Code::corrupt, str("not JSON: ", json_problem(e.what())));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::out_of_memory,
                         str("not enough memory to read ", text.size(), " bytes of JSON"));
  }
}

}  // namespace

Result<nlohmann::json> parse_strict_json(const std::string& text) {
  return parse<nlohmann::json>(text, std::numeric_limits<std::size_t>::max());
}
Result<nlohmann::ordered_json> parse_strict_ordered_json(const std::string& text) {
  return parse<nlohmann::ordered_json>(text, kMaxOrderedKeys);
}

}  // namespace strata::detail
