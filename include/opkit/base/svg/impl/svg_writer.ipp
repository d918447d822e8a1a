// SvgWriter's definitions.
#ifndef OPKIT_BASE_SVG_IMPL_SVG_WRITER_IPP_
#define OPKIT_BASE_SVG_IMPL_SVG_WRITER_IPP_

#include <algorithm>
#include <charconv>
#include <utility>

#include "opkit/base/json/json_writer.hpp"
#include "opkit/base/svg/svg_writer.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_COLD OPKIT_INLINE std::string EscapeXml(std::string_view text) {
  constexpr const char* kEntities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
  std::string out;
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0)
      out += "\xEF\xBF\xBD";
    else if (const size_t entity = std::string_view("&<>\"").find(text[0]); entity != text.npos)
      out += kEntities[entity];
    else if (static_cast<unsigned char>(text[0]) < 32)
      out += ' ';  // XML has no control characters
    else
      out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

OPKIT_COLD OPKIT_INLINE SvgWriter::SvgWriter(int width, int height) {
  Add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="@" height="@" viewBox="0 0 @ @")"
      R"( font-family="sans-serif" font-size="12">)"
      "\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      {width, height, width, height});
}
OPKIT_COLD OPKIT_INLINE void SvgWriter::Add(std::string_view form,
                                            std::initializer_list<Text> parts) {
  for (const Text& part : parts) {
    out_ += form.substr(0, form.find('@'));
    part.AppendTo(out_);
    form.remove_prefix(form.find('@') + 1);
  }
  out_ += form;
}
OPKIT_COLD OPKIT_INLINE void SvgWriter::Line(double x1, double y1, double x2, double y2,
                                             std::string_view attributes) {
  Add("<line x1=\"@\" y1=\"@\" x2=\"@\" y2=\"@\" @/>\n",
      {Rounded(x1), Rounded(y1), Rounded(x2), Rounded(y2), attributes});
}
OPKIT_COLD OPKIT_INLINE void SvgWriter::Label(double x, double y, std::string_view attributes,
                                              std::string_view text) {
  Add("<text x=\"@\" y=\"@\" @>@</text>\n", {Rounded(x), Rounded(y), attributes, EscapeXml(text)});
}
OPKIT_COLD OPKIT_INLINE void SvgWriter::CutLabel(double x, double y, std::string_view attributes,
                                                 std::string_view text, size_t most) {
  size_t end = 0;
  for (size_t shown = 0; end < text.size() && shown < most; ++shown)
    end += (std::max)(Utf8Length(text.substr(end)), size_t{1});
  if (end >= text.size()) return Label(x, y, attributes, text);
  Add("<text x=\"@\" y=\"@\" @>@…<title>@</title></text>\n",
      {Rounded(x), Rounded(y), attributes, EscapeXml(text.substr(0, end)), EscapeXml(text)});
}
OPKIT_COLD OPKIT_INLINE std::string SvgWriter::Rounded(double value, int digits) {
  char text[400];  // the longest number has 309 digits
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits);
  return std::string(text, end.ptr);
}
OPKIT_COLD OPKIT_INLINE std::string SvgWriter::Finish() && { return std::move(out_) + "</svg>\n"; }

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_SVG_IMPL_SVG_WRITER_IPP_
