#include "terminal/line_editor.h"
#include "terminal/plain_line.h"

namespace strata::cli {

LineEditor::LineEditor(std::string) {}
LineEditor::~LineEditor() = default;

Result<std::optional<std::string>> LineEditor::read(const std::string& prompt) {
  return read_plain_line(prompt);
}

}  // namespace strata::cli
