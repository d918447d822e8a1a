// ParseJson: parses JSON text after a check of its structure. Throws for text that is not JSON, and
// for text of which the JSON library would drop a part.
#ifndef OPKIT_INTEROP_PARSE_JSON_HPP_
#define OPKIT_INTEROP_PARSE_JSON_HPP_

#include "opkit/base/name_index.hpp"
#include "opkit/interop/json_values.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr int kMaxJsonDepth = 320;

// Refuses duplicate members, of which the JSON library would drop one, and nesting that could
// overflow the stack. (The library's parser with a callback also finds duplicates, but in quadratic
// time.)
class JsonStructureCheck final : public nlohmann::json_sax<Json> {
 public:
  bool start_object(size_t) override {
    open_.emplace_back();
    return Enter();
  }
  bool key(std::string& name) override {
    if (open_.back().Find(name) >= 0)
      Throw(ErrorCode::kInvalidArgument, "the document has the member '", name,
            "' twice in one object");
    open_.back().Add(name);
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return --depth_ >= 0;
  }
  bool start_array(size_t) override { return Enter(); }
  bool end_array() override { return --depth_ >= 0; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  bool Enter() {
    if (++depth_ > kMaxJsonDepth)
      Throw(ErrorCode::kUnsupported, "the document is nested more than ", kMaxJsonDepth, " deep");
    return true;
  }
  std::vector<NameIndex> open_;  // member names of the objects being read
  int depth_ = 0;
};

// Parses a document. Throws kInvalidArgument for text that is not JSON or has duplicate members,
// kUnsupported for nesting more than kMaxJsonDepth deep.
inline Json ParseJson(std::string_view text) {
  JsonStructureCheck check;
  static_cast<void>(Json::sax_parse(text, &check));  // a syntax error is reported below
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.parse_error.101] parse …"
    const size_t begin = what.find("] ");
    Throw(ErrorCode::kInvalidArgument, "the document is not JSON: ",
          begin == std::string_view::npos ? what : what.substr(begin + 2));
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_PARSE_JSON_HPP_
