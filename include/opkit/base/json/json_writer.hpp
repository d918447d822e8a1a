// JsonWriter: appends JSON to a string. All JSON of the toolkit is written through it, so that
// escapes, commas and numbers that JSON lacks are handled in one place.
#ifndef OPKIT_BASE_JSON_JSON_WRITER_HPP_
#define OPKIT_BASE_JSON_JSON_WRITER_HPP_

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the length in bytes of the valid UTF-8 sequence (The Unicode Standard, table 3-7) at the
// start of `text`; 0 if the first bytes are not valid UTF-8.
size_t Utf8Length(std::string_view text);

// Appends `text` in quotes, escaped by the rules of RFC 8259. Writes U+FFFD for each invalid byte.
void AppendJsonString(std::string& out, std::string_view text);

template <class Integer>
void AppendInteger(std::string& out, Integer value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

// Appends the shortest text that reads back as the number, or null for NaN and the infinities,
// which JSON cannot express.
void AppendNumber(std::string& out, double value);

// Every call appends at once. Fast enough for files of millions of lines; a caller may move the
// text away between two calls.
//
//   std::string text;
//   JsonWriter json(text);
//   json.BeginObject().Member("name", name).Member("sizes", std::vector{1, 2});
//   json.Key("rows").BeginArray();
//   for (const Row& row : rows) json.NewLine("  ").Value(row.time);
//   json.EndArray().EndObject();
class JsonWriter {
 public:
  enum Spacing {
    kCompact,  // {"a":1,"b":2}
    kSpaced    // {"a": 1, "b": 2}
  };

  // The string must outlive the writer.
  explicit JsonWriter(std::string& out, Spacing spacing = kSpaced)
      : out_(out), is_spaced_(spacing == kSpaced) {}
  JsonWriter(JsonWriter&&) = delete;

  JsonWriter& BeginObject() { return Begin('{'); }
  JsonWriter& EndObject() { return End('}'); }
  JsonWriter& BeginArray() { return Begin('['); }
  JsonWriter& EndArray() { return End(']'); }
  // Begins a member of an object; the next call appends its value.
  JsonWriter& Key(std::string_view name);
  // Appends a bool, a number, a string, or a range of these as an array.
  template <class T>
  JsonWriter& Value(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      Item() += value ? "true" : "false";
    } else if constexpr (std::is_integral_v<T>) {
      AppendInteger(Item(), value);
    } else if constexpr (std::is_floating_point_v<T>) {
      AppendNumber(Item(), value);
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      AppendJsonString(Item(), value);
    } else {
      BeginArray();
      for (const auto& element : value) Value(element);
      EndArray();
    }
    return *this;
  }
  template <class T>
  JsonWriter& Member(std::string_view name, const T& value) {
    return Key(name).Value(value);
  }
  // Appends the comma and the new line before an item, and returns the string. The caller then
  // appends one JSON value.
  std::string& Item();
  // Begins the next item, key or end on a line of its own, after `indent`, a literal.
  JsonWriter& NewLine(const char* indent = "") {
    indent_ = indent;
    return *this;
  }

 private:
  JsonWriter& Begin(char bracket);
  JsonWriter& End(char bracket);
  void AppendNewLine();

  std::string& out_;
  const bool is_spaced_;
  bool needs_comma_ = false;      // a comma precedes the next item or key
  const char* indent_ = nullptr;  // indent of the next item's new line; null: it stays on this line
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/json/impl/json_writer.ipp"
#endif

#endif  // OPKIT_BASE_JSON_JSON_WRITER_HPP_
