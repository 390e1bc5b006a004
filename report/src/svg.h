#pragma once

#include <string>
#include <string_view>

namespace strata::detail {

/// Text as it is written in XML and HTML, also in attributes.
std::string escaped(std::string_view text);
/// A style element with the colours of both schemes and the classes of pictures, for a picture outside a
/// page.
std::string picture_style();

}  // namespace strata::detail
