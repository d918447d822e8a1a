#include "opkit/base/svg/svg_writer.hpp"

#include <doctest/doctest.h>

namespace svg_writer_test { namespace {

using namespace opkit;

TEST_CASE("texts are escaped for XML") {
  CHECK(detail::EscapeXml("a<b & \"c\" > é") == "a&lt;b &amp; &quot;c&quot; &gt; é");
  CHECK(detail::EscapeXml(std::string_view("\0\x01\n", 3)) == "   ");
  CHECK(detail::EscapeXml("x\xff\xc3y") == "x\xEF\xBF\xBD\xEF\xBF\xBDy");
}

TEST_CASE("a document has its elements in order") {
  detail::SvgWriter svg(20, 10);
  svg.Line(0, 1.005, 2, 1e9, "stroke=\"#ddd\"");
  svg.Label(1, 2, "fill=\"#444\"", "a & b");
  svg.CutLabel(1, 2, "", "äöü<", 4);
  svg.CutLabel(1, 2, "", "äöü<x", 4);
  svg.Add("<g>@, @</g>\n", {"@", 3});
  CHECK(std::move(svg).Finish() ==
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"20\" height=\"10\" "
        "viewBox=\"0 0 20 10\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        "<line x1=\"0.00\" y1=\"1.00\" x2=\"2.00\" y2=\"1000000000.00\" stroke=\"#ddd\"/>\n"
        "<text x=\"1.00\" y=\"2.00\" fill=\"#444\">a &amp; b</text>\n"
        "<text x=\"1.00\" y=\"2.00\" >äöü&lt;</text>\n"
        "<text x=\"1.00\" y=\"2.00\" >äöü&lt;…<title>äöü&lt;x</title></text>\n"
        "<g>@, 3</g>\n"
        "</svg>\n");
}

}  // namespace
}  // namespace svg_writer_test
