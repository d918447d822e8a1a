// Generated from tools/report_page/page.html by embed.py there: change that file.
// clang-format off
#ifndef OPKIT_REPORT_IMPL_PAGE_PAGE_IPP_
#define OPKIT_REPORT_IMPL_PAGE_PAGE_IPP_

#include <string_view>

#include "opkit/config.hpp"
#include "opkit/report/impl/page/functions_js.ipp"
#include "opkit/report/impl/page/page_js.ipp"
#include "opkit/report/impl/page/partition_js.ipp"
#include "opkit/report/impl/page/run_js.ipp"
#include "opkit/report/impl/page/style_css.ipp"
#include "opkit/report/impl/page/tables_js.ipp"
#include "opkit/report/impl/page/timeline_js.ipp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr char kPageBeforeData0[] = R"page(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
      content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>opkit report</title>
)page";
inline constexpr char kPageBeforeData2[] = R"page(</head>
<body>
<header>
<h1 id="title"></h1><span class="faint" id="summary"></span>
<div class="tools">
<input type="search" id="search" placeholder="Find a name or node" aria-label="Find a name or node">
<output class="faint" id="found"></output>
<button id="closer" title="Zoom in (+)" aria-label="Zoom in">+</button>
<button id="wider" title="Zoom out (-)" aria-label="Zoom out">&minus;</button>
<button id="whole" title="Show all (0)">All</button>
</div>
</header>
<div id="stage">
<div id="timeline">
<canvas tabindex="0" role="application" aria-label="Timeline"></canvas>
<div id="tip" hidden></div>
</div>
<aside aria-live="polite">
<div id="details"></div>
<p class="faint">Wheel zooms, drag pans, click selects. Keys in the timeline: <kbd>&larr;</kbd>
<kbd>&rarr;</kbd> <kbd>&uarr;</kbd> <kbd>&darr;</kbd> pan, <kbd>+</kbd> <kbd>&minus;</kbd> zoom,
<kbd>0</kbd> all, <kbd>n</kbd> <kbd>p</kbd> next and previous, <kbd>u</kbd> parent,
<kbd>Enter</kbd> zoom to the selected, <kbd>Esc</kbd> clear.</p>
</aside>
</div>
<div class="sections">
<section><h2>Names</h2><div class="scroll"><table id="rows"></table></div></section>
<section><h2>Domains</h2><table id="domains"></table></section>
<section id="roofline_section"><h2>Roofline</h2><svg id="roofline" viewBox="0 0 620 330"></svg></section>
<section id="plan_section" hidden><h2>Planned memory over the run</h2>
<svg id="plan" viewBox="0 0 620 200"></svg>
<p class="faint" id="peak"></p><div class="scroll"><table id="owners"></table></div></section>
<section id="graph_section" hidden><h2>Graph by time</h2><p class="faint" id="graph_note"></p>
<div class="scroll"><svg id="graph"></svg></div></section>
<section id="processes_section" hidden><h2>Processes of the run</h2><table id="processes"></table></section>
<section id="waits_section" hidden><h2>Waits for other processes</h2>
<p class="faint">The time in which a message or a collective went on and no other node of its process ran.</p>
<div class="scroll"><table id="waits"></table></div></section>
<section id="partition_section" hidden><h2>Partitions</h2>
<p class="faint" id="partition_note"></p><div class="scroll"><table id="subgraphs"></table></div>
<h2>Nodes that stay</h2><div class="scroll"><table id="staying"></table></div></section>
<section id="memory_section"><h2>Memory</h2><table id="memory"></table></section>
</div>
<script type="application/json" id="data">)page";
inline constexpr char kPageAfterData0[] = R"page(</script>
)page";
inline constexpr char kPageAfterData7[] = R"page(</body>
</html>
)page";
inline constexpr std::string_view kPageBeforeData[] = {
    kPageBeforeData0,
    kPageStyleCss,
    kPageBeforeData2,
};
inline constexpr std::string_view kPageAfterData[] = {
    kPageAfterData0,
    kPageFunctionsJs,
    kPageTimelineJs,
    kPageTablesJs,
    kPagePageJs,
    kPageRunJs,
    kPagePartitionJs,
    kPageAfterData7,
};

}}}  // namespace opkit::detail

#endif  // OPKIT_REPORT_IMPL_PAGE_PAGE_IPP_
