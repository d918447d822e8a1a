// Generated from tools/report_page/style.css by embed.py there: change that file.
// clang-format off
#ifndef OPKIT_REPORT_IMPL_PAGE_STYLE_CSS_IPP_
#define OPKIT_REPORT_IMPL_PAGE_STYLE_CSS_IPP_

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr char kPageStyleCss[] = R"page(<style>
:root {
  color-scheme: light dark;
  --back: #ffffff; --panel: #f4f5f7; --line: #d5d9df; --text: #1b1f24; --faint: #68707c;
  --custom: #c2410c; --choice: #1d4ed8; --frame: #7c3aed; --plot: #0f766e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #16181c; --panel: #1f2227; --line: #363b43; --text: #e6e8eb; --faint: #98a1ad;
    --custom: #fb923c; --choice: #7aa2ff; --frame: #b794f6; --plot: #2dd4bf;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--back); color: var(--text);
  font: 13px/1.45 system-ui, "DejaVu Sans", sans-serif;
}
header { display: flex; flex-wrap: wrap; gap: 4px 16px; align-items: center; padding: 10px 16px; }
h1 { font-size: 17px; margin: 0; }
h2 { font-size: 14px; margin: 0 0 6px; }
header .tools { margin-left: auto; display: flex; gap: 6px; align-items: center; }
.faint { color: var(--faint); }
input, button {
  font: inherit; color: inherit; background: var(--back);
  border: 1px solid var(--line); border-radius: 4px; padding: 3px 8px;
}
button { cursor: pointer; }
button:hover { border-color: var(--choice); }
:focus-visible { outline: 2px solid var(--choice); outline-offset: 1px; }
#stage {  /* --tall: the height of all rows of the timeline */
  display: flex; border-block: 1px solid var(--line);
  height: min(58vh, var(--tall)); min-height: 260px;
}
#timeline { position: relative; flex: 1; min-width: 0; overflow: hidden; }
canvas { display: block; width: 100%; height: 100%; cursor: crosshair; touch-action: none; }
canvas:focus-visible { outline-offset: -2px; }
#tip {
  position: absolute; pointer-events: none; max-width: 480px; padding: 5px 8px; z-index: 1;
  background: var(--panel); border: 1px solid var(--line); border-radius: 4px;
  box-shadow: 0 2px 8px #0003; white-space: pre-line; overflow-wrap: anywhere;
}
aside {
  width: 320px; overflow: auto; padding: 10px 14px; background: var(--panel);
  border-left: 1px solid var(--line);
}
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 12px; margin: 0 0 10px; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
dd button { text-align: left; }
kbd {
  font: inherit; font-size: 12px; padding: 0 4px;
  border: 1px solid var(--line); border-radius: 3px;
}
.sections { display: flex; flex-wrap: wrap; gap: 16px 40px; padding: 16px; }
section { min-width: 0; }
.scroll { overflow: auto; max-height: 60vh; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: 2px 10px; text-align: right; white-space: nowrap; }
td.text, th.text { text-align: left; }
td.text { max-width: 460px; overflow: hidden; text-overflow: ellipsis; }
thead th { position: sticky; top: 0; background: var(--panel); padding: 0; }
th button { border: 0; background: none; padding: 4px 10px; font-weight: 600; width: 100%; }
th { text-align: right; }
th button { text-align: inherit; }
tbody tr { border-top: 1px solid var(--line); cursor: pointer; }
tbody tr:hover, tr[aria-selected=true] { background: var(--panel); }
tr[aria-selected=true] td:first-child { box-shadow: inset 3px 0 var(--choice); }
.custom { color: var(--custom); font-weight: 600; }
svg { width: 620px; max-width: 100%; font-size: 11px; }
svg text { fill: var(--text); }
#graph { width: auto; max-width: none; }
#graph rect { stroke: var(--line); cursor: pointer; }
#graph .critical { stroke: var(--choice); stroke-width: 2; }
#graph path { fill: none; stroke: var(--line); }
#graph text { pointer-events: none; }
#plan .area { fill: var(--plot); fill-opacity: 0.35; stroke: var(--plot); }
#plan .arena { stroke: var(--faint); stroke-dasharray: 4 3; }
svg .axis { stroke: var(--line); }
svg .axis-text { fill: var(--faint); }
svg .roof { stroke: var(--choice); stroke-width: 2; fill: none; }
svg circle { fill: var(--plot); fill-opacity: 0.6; stroke: var(--back); }
svg circle.custom { fill: var(--custom); }
.share { display: inline-block; height: 9px; background: var(--plot); border-radius: 2px; }
@media (max-width: 800px) {
  #stage { flex-direction: column; height: auto; }
  #timeline { height: min(50vh, max(var(--tall), 160px)); flex: none; }
  aside { width: auto; border-left: 0; }
}
</style>
)page";

}}}  // namespace opkit::detail

#endif  // OPKIT_REPORT_IMPL_PAGE_STYLE_CSS_IPP_
