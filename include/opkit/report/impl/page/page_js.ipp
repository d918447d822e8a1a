// Generated from tools/report_page/page.js by embed.py there: change that file.
// clang-format off
#ifndef OPKIT_REPORT_IMPL_PAGE_PAGE_JS_IPP_
#define OPKIT_REPORT_IMPL_PAGE_PAGE_JS_IPP_

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr char kPagePageJs[] = R"page(<script>
// Fills the page and shows it. Comes after the scripts that define its functions.
'use strict';

document.title = `${data.process}: opkit report`;
element('title').textContent = data.process;
element('summary').textContent = `${data.spans.toLocaleString('en')} spans on ` +
    `${groups.length - counters.length} threads in ${duration(data.duration)}` +
    (data.dropped ? `; ${data.dropped.toLocaleString('en')} records found no room` : '');
readColours();
matchMedia('(prefers-color-scheme: dark)').onchange = () => { readColours(); redraw(); };
makeTables();
makeRoofline();
element('stage').style.setProperty('--tall', `${contentHeight + kGap + kBarHeight}px`);
new ResizeObserver(resize).observe(canvas);
resize();
showAll();

// For tests.
window.opkitReport = {
  bars: count, view, nameOf, zoomTo, select, showAll, selected: () => selected,
  drawn: () => { draw(); return drawn; },
  // Returns the place of a bar in the window.
  place(bar) {
    const box = canvas.getBoundingClientRect(), middle = (begin[bar] + end[bar]) / 2;
    return {x: box.left + xOf(middle), y: box.top + rows[rowOf[bar]].y - view.top + kBarHeight / 2};
  },
};
</script>
)page";

}}}  // namespace opkit::detail

#endif  // OPKIT_REPORT_IMPL_PAGE_PAGE_JS_IPP_
