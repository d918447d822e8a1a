// Appends times to a text, fast enough for files of millions of lines, and splits text at UTF-8.
#ifndef OPKIT_PROFILE_JSON_TEXT_HPP_
#define OPKIT_PROFILE_JSON_TEXT_HPP_

#include <cstdint>
#include <string>
#include <string_view>

#include "opkit/base/json/json_writer.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls f with each UTF-8 sequence of the text, and with U+FFFD for each byte outside of a valid
// sequence.
template <class F>
void ForEachCharacter(std::string_view text, F f) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    f(length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

// Appends `ns` as microseconds with three decimals.
inline void AppendMicroseconds(std::string& out, int64_t ns) {
  const uint64_t size = ns < 0 ? -static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  if (ns < 0) out += '-';
  AppendInteger(out, size / 1000);
  const auto rest = static_cast<int>(size % 1000);
  const char decimals[] = {'.', static_cast<char>('0' + rest / 100),
                           static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
  out.append(decimals, 4);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_JSON_TEXT_HPP_
