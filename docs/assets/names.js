/* Names for screen readers that the theme leaves out. */
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
