"""Where the areas of the screen are: one, two or three beside each other, as far as there is room."""

AREAS_STYLE = """
#body { height: 1fr; }
#middle { width: 1fr; height: 1fr; }
#small { display: none; width: 100%; height: 100%; content-align: center middle; text-align: center; }
.-medium Tabs, .-wide Tabs { display: none; }
.-narrow #body { layout: vertical; }
.-narrow Inspector { layout: grid; grid-size: 2; grid-rows: auto; width: 100%; height: auto; max-height: 9; }
.-narrow KnobLine.-idle { display: none; }
.-narrow #refusal { column-span: 2; }
.-narrow.-at-chart Inspector, .-narrow.-at-details Inspector, .-narrow.-at-borders Inspector { display: none; }
#details { display: none; padding: 0 1; background: $surface; }
.-wide #details { display: block; width: 40; height: 1fr; }
.-at-details #details { display: block; width: 40; height: 1fr; }
.-narrow.-at-details #details { width: 100%; height: 6; }
SplitBar { display: none; }
.-high SplitBar.-cut, .-at-borders SplitBar { display: block; }
.-tiny SplitBar, .-short SplitBar { display: none; }
.-ascii SplitBar { border-top: ascii $primary; }
.-tiny #small, .-short #small { display: block; }
.-tiny #body, .-tiny Header, .-tiny Footer, .-tiny Status, .-tiny Tabs { display: none; }
.-short #body, .-short Header, .-short Footer, .-short Status, .-short Tabs { display: none; }
.-ascii * { scrollbar-size: 0 0; }
.-ascii Question Vertical, .-ascii NameQuestion Vertical { border: ascii $primary; }
.-ascii Chooser OptionList, .-ascii Help VerticalScroll { border: ascii $primary; }
.-ascii Place { border-top: ascii $primary; }
"""
