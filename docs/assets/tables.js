/* Tables that can be sorted (buttons in the heads, aria-sort) and filtered (live count). */
for (const table of document.querySelectorAll("table.ls-sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const rows = [...body.rows];
  if (rows.length > 1) heads.forEach((head, column) => makeSortable(head, column, heads, body, rows));
  if ("filter" in table.dataset) addFilter(table, rows);
}

/* On a phone a row of words is a card (site.css): cells written in Markdown learn the names of their columns. */
for (const table of document.querySelectorAll(".ls-cards table:not([class])")) {
  const names = [...table.tHead.rows[0].cells].map((head) => head.textContent);
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, column) => { cell.dataset.label = names[column]; });
  }
}

function makeSortable(head, column, heads, body, rows) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent;
  head.replaceChildren(button);
  const numeric = head.classList.contains("num");
  const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
  button.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const known = rows.filter((row) => key(row) !== "");
    known.sort((a, b) => (numeric ? number(key(a)) - number(key(b)) : key(a).localeCompare(key(b), "en", { numeric: true })));
    if (down) known.reverse();
    body.append(...known, ...rows.filter((row) => key(row) === ""));
  });
}

/* Python writes an infinity as "inf". */
function number(text) {
  return text.endsWith("inf") ? (text.startsWith("-") ? -Infinity : Infinity) : Number(text);
}

function addFilter(table, rows) {
  const bar = document.createElement("div");
  bar.className = "ls-filter";
  bar.innerHTML = '<input type="search" placeholder="Filter rows" aria-label="Filter rows"> <output aria-live="polite"></output>';
  const [field, count] = bar.children;
  const apply = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    count.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  };
  field.addEventListener("input", apply);
  table.parentElement.before(bar);
  apply();
}
