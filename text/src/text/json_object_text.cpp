#include <strata/text/json_object_text.h>

namespace strata {
namespace {

bool is_space(unsigned char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

/// -1: none.
int hex_digit(unsigned char c) {
  if (is_digit(c)) return c - '0';
  const unsigned char lower = c | 0x20U;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

bool JsonObjectText::push(unsigned char byte) noexcept {
  const JsonObjectText before = *this;
  if (step(byte)) return true;
  *this = before;
  return false;
}

bool JsonObjectText::step(unsigned char byte) noexcept {
  const bool may_have_space = state_ <= State::after_value || state_ == State::complete;
  if (may_have_space && is_space(byte)) return push_space();
  space_ = 0;
  switch (state_) {
    case State::begin:
      return byte == '{' && open(true);
    case State::first_key:
      if (byte == '}') return close();
      [[fallthrough]];
    case State::key:
      is_key_ = true;
      return byte == '"' && go(State::string);
    case State::colon:
      return byte == ':' && go(State::value);
    case State::first_value:
      if (byte == ']') return close();
      [[fallthrough]];
    case State::value:
      return push_begin_of_value(byte);
    case State::after_value:
      return push_after_value(byte);
    case State::complete:
      return false;
    case State::literal:
      if (byte != static_cast<unsigned char>(*rest_)) return false;
      return *++rest_ != '\0' || go(State::after_value);
    case State::string:
    case State::escape:
    case State::hex:
    case State::low_backslash:
    case State::low_u:
    case State::utf8:
      return push_in_string(byte);
    default:
      return push_in_number(byte);
  }
}

bool JsonObjectText::push_space() noexcept { return ++space_ <= kMaxSpace; }

bool JsonObjectText::open(bool is_object) noexcept {
  if (depth_ == kMaxDepth) return false;
  ++depth_;
  objects_ = objects_ << 1U | (is_object ? 1U : 0U);
  return go(is_object ? State::first_key : State::first_value);
}

bool JsonObjectText::close() noexcept {
  --depth_;
  objects_ >>= 1U;
  return go(depth_ == 0 ? State::complete : State::after_value);
}

bool JsonObjectText::push_begin_of_value(unsigned char byte) noexcept {
  const auto literal = [&](const char* rest) {
    rest_ = rest;
    return go(State::literal);
  };
  switch (byte) {
    case '{':
    case '[':
      return open(byte == '{');
    case '"':
      is_key_ = false;
      return go(State::string);
    case 't':
      return literal("rue");
    case 'f':
      return literal("alse");
    case 'n':
      return literal("ull");
    case '-':
      return go(State::minus);
    case '0':
      return go(State::zero);
    default:
      return is_digit(byte) && go(State::digits);
  }
}

bool JsonObjectText::push_after_value(unsigned char byte) noexcept {
  if (byte == ',') return go(in_object() ? State::key : State::value);
  const unsigned char end = in_object() ? '}' : ']';
  return byte == end && close();
}

bool JsonObjectText::push_in_string(unsigned char byte) noexcept {
  switch (state_) {
    case State::escape:
      return push_escape(byte);
    case State::hex:
      return push_hex(byte);
    case State::low_backslash:
      return byte == '\\' && go(State::low_u);
    case State::low_u:
      if (byte != 'u') return false;
      is_low_ = true;
      left_ = 4;
      code_ = 0;
      return go(State::hex);
    case State::utf8:
      if (byte < low_ || byte > high_) return false;
      low_ = 0x80;
      high_ = 0xBF;
      return --left_ > 0 || go(State::string);
    default:
      break;
  }
  if (byte == '"') {
    end_string();
    return true;
  }
  if (byte == '\\') return go(State::escape);
  if (byte < 0x80) return byte >= 0x20;
  return push_begin_of_character(byte);
}

// Table 3-7 of the Unicode Standard: no overlong forms, no surrogates, nothing above U+10FFFF.
bool JsonObjectText::push_begin_of_character(unsigned char byte) noexcept {
  if (byte < 0xC2 || byte > 0xF4) return false;
  left_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  return go(State::utf8);
}

bool JsonObjectText::push_escape(unsigned char byte) noexcept {
  switch (byte) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
      return go(State::string);
    case 'u':
      is_low_ = false;
      left_ = 4;
      code_ = 0;
      return go(State::hex);
    default:
      return false;
  }
}

bool JsonObjectText::push_hex(unsigned char byte) noexcept {
  const int digit = hex_digit(byte);
  if (digit < 0) return false;
  code_ = static_cast<std::uint16_t>(code_ << 4U | static_cast<unsigned>(digit));
  --left_;
  // The first two digits say which half of a pair it is: D8 to DB begin the first, DC to DF the second.
  if (is_low_ && left_ == 3 && code_ != 0xD) return false;
  if (left_ == 2 && ((code_ & 0xFCU) == 0xDC) != is_low_) return false;
  if (left_ > 0) return true;
  return go(!is_low_ && code_ >> 10U == 0x36 ? State::low_backslash : State::string);
}

// A number ends with what follows it.
bool JsonObjectText::push_in_number(unsigned char byte) noexcept {
  const bool is_exponent = byte == 'e' || byte == 'E';
  switch (state_) {
    case State::minus:
      return is_digit(byte) && go(byte == '0' ? State::zero : State::digits);
    case State::point:
      return is_digit(byte) && go(State::fraction);
    case State::exponent:
      if (byte == '+' || byte == '-') return go(State::exponent_sign);
      [[fallthrough]];
    case State::exponent_sign:
      return is_digit(byte) && go(State::exponent_digits);
    default:
      break;
  }
  if (state_ != State::zero && is_digit(byte)) return true;
  if (byte == '.' && (state_ == State::zero || state_ == State::digits)) return go(State::point);
  if (is_exponent && state_ != State::exponent_digits) return go(State::exponent);
  state_ = State::after_value;
  return is_space(byte) ? push_space() : push_after_value(byte);
}

}  // namespace strata
