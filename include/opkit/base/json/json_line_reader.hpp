// JsonLineReader: reads back a line of JSON that JsonWriter wrote. JSON of other programs is parsed
// by nlohmann/json (interop/parse_json.hpp), which the runtime itself does not need.
#ifndef OPKIT_BASE_JSON_JSON_LINE_READER_HPP_
#define OPKIT_BASE_JSON_JSON_LINE_READER_HPP_

#include <cstdint>
#include <string>
#include <string_view>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Reads the parts of a line one after the other. Each function returns false, and moves nothing, if
// the text goes on in another way. The caller gives the text between two values exactly, spaces
// too, so that only lines of the own writer are read.
//
//   JsonLineReader line(R"({"name": "x", "ns": 1.5})");
//   const bool good = line.Skip(R"({"name": )") && line.ReadString(&name) &&
//                     line.Skip(R"(, "ns": )") && line.ReadNumber(&ns) && line.Skip("}");
class JsonLineReader {
 public:
  // The text must outlive the reader.
  explicit JsonLineReader(std::string_view text) : rest_(text) {}

  bool Skip(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  // Reads a string as RFC 8259 defines it, of valid UTF-8. On failure `value` stays as it was.
  bool ReadString(std::string* value);
  // Reads a finite number; no infinity, NaN or null.
  bool ReadNumber(double* value);
  bool ReadInteger(int64_t* value);

  // The text that is not read yet.
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/json/impl/json_line_reader.ipp"
#endif

#endif  // OPKIT_BASE_JSON_JSON_LINE_READER_HPP_
