// Sorts tables by the column whose heading is pressed. Without it everything is still there.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const falling = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const key = (row) => row.cells[column].textContent.replaceAll(",", "");
      const compare = (a, b) => a - b || a.localeCompare(b);
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => compare(key(a), key(b)) * (falling ? -1 : 1));
      table.tBodies[0].append(...rows);
    });
  });
}
